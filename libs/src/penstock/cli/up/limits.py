"""The limits of `penstock up`: how long it waits, and when it gives up."""

import msgspec

from penstock.cli.children import ChildLimits
from penstock.cli.up.progress import ProgressLimits


class UpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the supervisor and of its child processes."""

    drain_deadline_ms: int = 10_000
    # From SIGTERM to SIGKILL: the drain, and some time for the steps after it.
    stop_grace_s: float = 15.0
    # For a store that does not answer, for example because it starts at the same time.
    store_deadline_s: float = 30.0
    store_retry_s: float = 1.0
    # Some seconds are usual. A machine with ten times as many busy processes as cores once took more than a minute.
    ready_deadline_s: float = 120.0
    ready_poll_s: float = 0.02
    # Between two searches for a Python that has Spark.
    spark_poll_s: float = 5.0
    disk_poll_s: float = 2.0
    # Enough for some seconds of heavy writing, and larger than a nats-server's own files.
    free_bytes_min: int = 256 * 1024 * 1024
    # A process that dies this often before the first "ready" counts as broken.
    starts_before_giving_up: int = 4
    # Between two looks at the processes; a change in the announcements of the services is seen at once.
    watch_poll_s: float = 1.0
    progress: ProgressLimits = ProgressLimits()
    children: ChildLimits = ChildLimits()


DEFAULT_LIMITS = UpLimits()
