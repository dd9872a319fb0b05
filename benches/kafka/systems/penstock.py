"""A Penstock as `penstock up` starts it, on a folder or on a store that is as slow as S3."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benches.kafka.systems.system import System
from benches.reading import slow_cluster
from tests.testkit.clusters.cluster import Cluster, running

# The defaults of `penstock up`, unlike those of tests.
ALL_SERVICES = ("--sequencers", "0", "--compactors", "1", "--janitors", "1")
# Median and 99th percentile of requests in ms: a PUT takes 30 to 100 ms.
READS_MS, WRITES_MS = (20, 50), (55, 100)
LANDING = "&landing=jetstream:"


class Penstock:
    """A started `penstock up`."""

    def __init__(self, cluster: Cluster, topic_configs: Mapping[str, str]) -> None:
        self.bootstrap = cluster.kafka
        self.pid = cluster.pid
        self.topic_configs = topic_configs


@contextlib.contextmanager
def penstock(arguments: Sequence[str] = (), *, is_slow: bool = False, is_express: bool = False) -> Iterator[System]:
    """A new Penstock with all services in a temporary folder.

    With `is_slow` its store has the latency of S3. With `is_express` topics have the express lane, too.
    """
    with contextlib.ExitStack() as stack:
        if is_slow:
            option = LANDING if is_express else ""
            slow = slow_cluster(READS_MS, WRITES_MS, *ALL_SERVICES, *arguments, option=option)
            yield Penstock(stack.enter_context(slow), {"penstock.lane": "express"} if is_express else {})
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True))
        yield Penstock(stack.enter_context(running(Path(folder) / "data", *ALL_SERVICES, *arguments)), {})
