"""The delay of readers when a cacher is killed or paused: the number of slow fetches before and after the fault."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from benches.load import RECORDS_PER_CALL
from benches.reading import read_by, results_of
from benches.report import Result
from benches.whole import create_topic, load, scratch_cluster
from tests.testkit.clusters.cluster import Cluster

PARTITIONS, READERS, MIB, RECORD_BYTES = 16, 8, 64, 4_096
BEFORE_S, RECOVERED_S, AFTER_S = 5.0, 5.0, 10.0
SLOWER = 3  # a slow fetch takes so many times the usual time of fetches before the fault
SLOW_S_MIN = 0.25  # a shorter delay may come from the machine
VICTIM = "cacher-1"


def recovery() -> Iterator[Result]:
    """Kill one of two cachers, then pause one, while readers repeat reads of the same records."""
    with scratch_cluster("--cachers", "2", uses_cachers=True) as cluster:
        create_topic(cluster, "read", PARTITIONS)
        arguments = ("--mib", str(MIB), "--record-bytes", str(RECORD_BYTES), "--partitions", str(PARTITIONS))
        load(cluster.kafka, "produce", "read", *arguments)
        for what in ("killed", "paused"):
            yield from _recovery(cluster, what)


def _recovery(cluster: Cluster, what: str) -> Iterator[Result]:
    # Whole calls only: otherwise readers would wait for records that do not exist.
    records = MIB * 2**20 // RECORD_BYTES // RECORDS_PER_CALL // PARTITIONS * RECORDS_PER_CALL
    seconds = BEFORE_S + RECOVERED_S + AFTER_S
    with (
        read_by(cluster.kafka, "read", PARTITIONS, READERS, records, "--endless", "--seconds", str(seconds)) as readers,
        contextlib.ExitStack() as healing,
    ):
        time.sleep(BEFORE_S)
        failed_s = time.time()
        if what == "killed":
            cluster.kill(VICTIM)
        else:
            cluster.pause(VICTIM)
            healing.callback(cluster.resume, VICTIM)
        times = results_of(readers)["times"]
    before = sorted(took_s for began_s, took_s in times if began_s + took_s < failed_s)
    usual_s = _p99(before)
    slow_s = max(SLOWER * usual_s, SLOW_S_MIN)
    at_once = [took_s for began_s, took_s in times if failed_s <= began_s + took_s and began_s < failed_s + RECOVERED_S]
    later = sorted(took_s for began_s, took_s in times if began_s >= failed_s + RECOVERED_S)
    name = f"a cacher of two {what}, {READERS} readers"
    figures = {"usual p99 ms": usual_s * 1000, "slow ms": slow_s * 1000, "fetches": float(len(times))}
    slow = sum(took_s > slow_s for took_s in at_once)
    yield Result("reading", f"{name}: slow fetches in 5 s", slow, "", details=figures)
    yield Result("reading", f"{name}: longest", max(at_once), "s")
    yield Result(
        "reading", f"{name}: slow fetches that begin 5 s later", sum(took_s > slow_s for took_s in later), "", 0
    )
    yield Result("reading", f"{name}: p99 5 s later, relative to before", _p99(later) / usual_s, "x")


def _p99(times: Sequence[float]) -> float:
    return times[int(len(times) * 0.99)]
