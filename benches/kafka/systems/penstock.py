"""A Penstock as `penstock up` starts it, on a folder or on a store that is as slow as S3."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benches.kafka.systems.system import System
from benches.reading import slow_cluster
from tests.testkit.clusters.cluster import Cluster, running

ALL_SERVICES = ("--compactors", "1", "--janitors", "1")  # the defaults of `penstock up`, unlike those of tests
# Median and 99th percentile of requests in ms: a PUT takes 30 to 100 ms.
READS_MS, WRITES_MS = (20, 50), (55, 100)


class Penstock:
    """A started `penstock up`."""

    def __init__(self, cluster: Cluster) -> None:
        self.bootstrap = cluster.kafka
        self.pid = cluster.pid


@contextlib.contextmanager
def penstock(arguments: Sequence[str] = (), *, is_slow: bool = False) -> Iterator[System]:
    """A new Penstock with all services in a temporary folder; with `is_slow` its store has the latency of S3."""
    with contextlib.ExitStack() as stack:
        if is_slow:
            yield Penstock(stack.enter_context(slow_cluster(READS_MS, WRITES_MS, *ALL_SERVICES, *arguments)))
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True))
        yield Penstock(stack.enter_context(running(Path(folder) / "data", *ALL_SERVICES, *arguments)))
