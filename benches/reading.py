"""The read path: store requests per GiB, latency over slow stores, catch-up reads beside the tail, idle consumers."""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benches.load import RECORDS_PER_CALL
from benches.readers import MAX_WAIT_MS, STARTED
from benches.report import Result
from benches.whole import TUNED, TUNED_MESSAGES, create_topic, load, scratch_cluster
from benches.zones import FarZone, account, far_zone, spent
from penstock.contracts.chunks import RECENT_MS
from penstock_gateway.fetch.limits import ThrottleLimits
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.metrics import total
from tests.testkit.servers.ports import free_ports
from tests.testkit.servers.seaweed import running_seaweed

TIMEOUT_S = 900.0
RECORD_BYTES_MAX = 16_384
CONSUMERS, PARTITIONS = (1, 10, 100), (1, 100, 1_000)
FAN_OUT_MIB = 12_800  # delivered to each zone in total: with many consumers of one partition, each reads less
NEAR_BUDGET, FAR_BUDGET = 5, 260  # GETs per GiB
FAR_BUDGET_FOR_EACH = 1.02  # GETs per segment
LOCAL_BUDGET, RING_BUDGET = 1.2, 3.0  # CPU of gateway, cacher, flusher and NATS for reads, ms/MiB
IDLERS = 1_000
# The stages of a record, from its arrival at a flusher to the answer of a waiting consumer: histograms by labels.
STAGES = {
    "first byte to flush": ("penstock_flusher_wait_seconds", "flush"),
    "flush to upload": ("penstock_flusher_wait_seconds", "upload"),
    "upload": ("penstock_flusher_put_seconds", ""),
    "stored to commit": ("penstock_flusher_wait_seconds", "turn"),
    "commit": ("penstock_flusher_commit_seconds", ""),
    "creation of the segment to announcement": ("penstock_gateway_announced_seconds", ""),
    "announcement to answer": ("penstock_gateway_tail_answer_seconds", ""),
}


LIKE_S3 = ((20, 100), (60, 250))  # p50 and p99 of reads and of writes, in ms
OLD_PARTITIONS = 16
LATENCY_RECORDS = 1_000  # with a few hundred, the p99 depends on two or three records
# A quiet flush costs as many requests as another flush, and has fewer bytes. By default there are up to eight per
# second on stores that charge for PUTs, and many more on `file://`. This bench counts requests per byte.
SPARING = {"PENSTOCK_QUIET_PUTS_PER_SECOND": "0.2"}


# At this rate segments are full, as the budgets assume. Tailing consumers are not behind: this machine runs them too,
# and must keep up.
FLUSH_MS = "4000"
FOLLOWED_MIB_PER_SECOND = 8
DELIVERED_MIB_PER_SECOND = 240  # to each zone, with many consumers of the same records


def requests(mib: int) -> Iterator[Result]:
    """GETs per GiB written, in the writer's zone and in another, for numbers of consumers and partitions."""
    for store in ("file", "s3"):
        for partitions in PARTITIONS:
            with _paid_cluster(store) as (cluster, store_url), far_zone(cluster, store_url) as far:
                for consumers in CONSUMERS:
                    copies = max(consumers // partitions, 1)
                    yield from _tail(store, cluster, far, consumers, partitions, min(mib, FAN_OUT_MIB // copies))


@contextlib.contextmanager
def _paid_cluster(store: str) -> Iterator[tuple[Cluster, str]]:
    """A cluster with few quiet flushes, and the address of its store."""
    with contextlib.ExitStack() as stack:
        if store == "file":
            cluster = stack.enter_context(scratch_cluster("--flush-ms", FLUSH_MS, uses_cachers=True, **SPARING))
            yield cluster, f"file://{cluster.data / 'objects'}?local_reads=off"
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-s3-", ignore_cleanup_errors=True))
        url = stack.enter_context(running_seaweed(Path(folder))).url("bench")
        yield stack.enter_context(scratch_cluster("--store", url, "--flush-ms", FLUSH_MS, **SPARING)), url


def _tail(store: str, cluster: Cluster, far: FarZone, consumers: int, partitions: int, mib: int) -> Iterator[Result]:
    topic = f"tail-{consumers}-{partitions}"
    create_topic(cluster, topic, partitions)
    record_bytes = min(RECORD_BYTES_MAX, mib * 2**20 // partitions // RECORDS_PER_CALL)
    records = mib * 2**20 // record_bytes // partitions // RECORDS_PER_CALL * RECORDS_PER_CALL  # of each partition
    before = account(cluster)
    with contextlib.ExitStack() as reading:
        all_readers = [
            reading.enter_context(read_by(kafka, topic, partitions, consumers, records))
            for kafka in (cluster.kafka, far.kafka)
        ]
        rate = min(FOLLOWED_MIB_PER_SECOND, DELIVERED_MIB_PER_SECOND * partitions / consumers)
        arguments = ("--calls", str(records * partitions // RECORDS_PER_CALL), "--record-bytes", str(record_bytes))
        arguments += ("--mib-per-second", str(rate))
        load(cluster.kafka, "produce", topic, *arguments, "--partitions", str(partitions), settings=_SENDING)
        unavailable = sum(results_of(readers)["unavailable"] for readers in all_readers)
    used = spent(before, account(cluster))
    written_gib = records * partitions * record_bytes / 2**30
    name = f"tailing, {store}: {consumers} consumers, {partitions} partitions"
    for zone, words, budget in (("near", "writer's zone", NEAR_BUDGET), ("far", "other zone", FAR_BUDGET)):
        figure = used[zone]["GETs"] / written_gib
        details = {"MiB": written_gib * 1024, **used["all"], **used[zone], "repeated reads": unavailable}
        yield Result("reading", f"{name}, {words}", figure, "GETs/GiB", budget, details=details)
    # If little is written in a flush interval, segments are not full, and there are more GETs per GiB. Gateways read
    # a few bytes themselves because a cacher is slow: this is little of a GiB, but much of a short run.
    for_each = used["far"]["by cachers"] / max(used["all"]["PUTs"], 1)
    yield Result("reading", f"{name}, other zone, by cachers", for_each, "GETs/segment", FAR_BUDGET_FOR_EACH)


def latency(records: int) -> Iterator[Result]:
    """Send to receipt over a store that answers in 5 ms, and over one that answers like S3."""
    stores = {"a store of 5 ms": ((5, 5.1), (5, 5.1)), "a store like S3": LIKE_S3}
    budgets = {("a store like S3", 250): (250, 500), ("a store like S3", 50): (150, 350)}
    for store, (reads, writes) in stores.items():
        for flush_ms in (250, 50):
            with slow_cluster(reads, writes, "--flush-ms", str(flush_ms)) as cluster:
                create_topic(cluster, "latency", 1)
                load(cluster.kafka, "latency", "latency", "--records", "20")  # a first use of all parts
                before = cluster.metrics()
                answer = load(cluster.kafka, "latency", "latency", "--records", str(records))
                stages = _stages_ms(before, cluster.metrics())
            times = sorted(answer["received_ms"])  # type: ignore[arg-type]  # a list
            p50, p99 = budgets.get((store, flush_ms), (None, None))
            name = f"{store}, flush {flush_ms} ms, send to received"
            yield Result("reading", f"{name}, p50", statistics.median(times), "ms", p50)
            yield Result("reading", f"{name}, p99", times[int(len(times) * 0.99) - 1], "ms", p99)
            for stage, mean_ms in stages.items():
                yield Result("reading", f"{name}: {stage}, mean", mean_ms, "ms")


def _stages_ms(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """The mean time of each stage between two readings of the metrics."""
    stages = {}
    for stage, (name, waited_for) in STAGES.items():
        labels = {"for": waited_for} if waited_for else {}
        seconds, count = (
            total(after, f"{name}_{part}", **labels) - total(before, f"{name}_{part}", **labels)
            for part in ("sum", "count")
        )
        stages[stage] = seconds * 1000 / max(count, 1)
    return stages


def replays(mib: int) -> Iterator[Result]:
    """The latency of tailing reads with and without ten catch-up consumers, and the speed of catch-up consumers."""
    with slow_cluster(*LIKE_S3) as cluster:
        yield from _beside_replays(cluster, "a store like S3", mib)
    for store, uses_cachers, budget in (("files", False, LOCAL_BUDGET), ("files through cachers", True, RING_BUDGET)):
        with scratch_cluster(uses_cachers=uses_cachers) as cluster:
            yield from _beside_replays(cluster, store, mib)
            time.sleep(ThrottleLimits().tailed_s)  # no client tails any more
            yield from _catch_up(cluster, store, _records_each(mib), budget)


def _beside_replays(cluster: Cluster, store: str, mib: int) -> Iterator[Result]:
    create_topic(cluster, "old", OLD_PARTITIONS)
    load(cluster.kafka, "produce", "old", "--mib", str(mib), settings=(*TUNED, *TUNED_MESSAGES))
    create_topic(cluster, "latency", 1)
    load(cluster.kafka, "latency", "latency", "--records", "20")  # a first use of all parts
    alone = _p99(cluster)
    time.sleep(RECENT_MS / 1000)  # all of it is cold now
    with contextlib.ExitStack() as replaying:
        for _ in range(10):  # idle priority: in production they have their own machines
            readers = read_by(cluster.kafka, "old", OLD_PARTITIONS, 1, _records_each(mib), "--endless", is_idle=True)
            replaying.enter_context(readers)
        beside = _p99(cluster)
    yield Result("reading", f"{store}: tail p99 alone", alone, "ms")
    yield Result("reading", f"{store}: tail p99 beside ten catch-up consumers", beside, "ms")
    yield Result(
        "reading", f"{store}: tail p99 beside ten catch-up consumers, relative to alone", beside / alone, "x", 1.2
    )


def _records_each(mib: int) -> int:
    """How many records `load` writes to each partition, one call to each in turn."""
    return mib * 1024 // RECORDS_PER_CALL // OLD_PARTITIONS * RECORDS_PER_CALL


def _catch_up(cluster: Cluster, store: str, records_each: int, budget: float) -> Iterator[Result]:
    for consumers in (1, 4):
        before = cluster.cpu_seconds()
        with read_by(cluster.kafka, "old", OLD_PARTITIONS, consumers, records_each) as readers:
            results = results_of(readers)
        used_s = sum(
            seconds - before.get(name, 0.0)
            for name, seconds in cluster.cpu_seconds().items()
            if name.startswith(("agent", "gateway", "cacher", "flusher", "nats-server"))
        )
        rate = results["mib"] * 2**20 / 1e6 / results["seconds"]
        name = f"{store}: catch-up, {consumers} consumers"
        yield Result("reading", name, rate, "MB/s", more_is_better=True)
        yield Result("reading", f"{name}, CPU of all servers", used_s * 1000 / results["mib"], "ms/MiB", budget)


def idlers(seconds: int = 60) -> Iterator[Result]:
    """The cost of a thousand consumers that wait for records in vain, with polls of two lengths."""
    for max_wait_ms, budget in ((30_000, 5), (MAX_WAIT_MS, None)):
        with scratch_cluster("--separate") as cluster:
            create_topic(cluster, "quiet", 100)
            memory_before = _gateway_memory(cluster)
            arguments = ("--seconds", str(seconds + 10), "--max-wait-ms", str(max_wait_ms))
            with read_by(cluster.kafka, "quiet", 100, IDLERS, 1, *arguments) as readers:
                time.sleep(5)  # until all consumers are connected and wait
                before, began_s = cluster.cpu_seconds()["gateway-1"], time.perf_counter()
                time.sleep(seconds)
                share = (cluster.cpu_seconds()["gateway-1"] - before) / (time.perf_counter() - began_s) * 100
                grown = _gateway_memory(cluster) - memory_before
                results_of(readers)
        name = f"{IDLERS} idle consumers, polls of {max_wait_ms / 1000:g} s"
        yield Result("reading", f"{name}: gateway CPU", share, "% of a core", budget)
        yield Result("reading", f"{name}: gateway memory for each", grown / IDLERS / 1024, "KiB")


@contextlib.contextmanager
def slow_cluster(
    reads: Sequence[float], writes: Sequence[float], *arguments: str, option: str = ""
) -> Iterator[Cluster]:
    """A cluster on a real S3 server, behind a proxy that waits before it answers.

    `option` is added to the store's address.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "s3").mkdir()
        with running_seaweed(Path(folder) / "s3") as server:
            (port,) = free_ports(1)
            command = [sys.executable, "-m", "benches.slow_store", "--behind", server.endpoint, "--port", str(port)]
            command += ["--reads", *map(str, reads), "--writes", *map(str, writes)]
            slow = subprocess.Popen(command)
            try:
                url = server.url("bench").replace(_quoted(server.endpoint), _quoted(f"http://127.0.0.1:{port}"))
                with running(Path(folder) / "data", "--store", url + option, *arguments) as cluster:
                    yield cluster
            finally:
                slow.kill()
                slow.wait()


_SENDING = ("linger.ms=20", "batch.size=262144", "queue.buffering.max.kbytes=262144")


@contextlib.contextmanager
def read_by(
    kafka: str, topic: str, partitions: int, consumers: int, records: int, *arguments: str, is_idle: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Consumers that read at the start of the block, and end with it; with `is_idle` they run at idle priority."""
    command = [
        *(("tests/testkit/idly",) if is_idle else ()),
        sys.executable,
        "-m",
        "benches.readers",
        "--bootstrap",
        kafka,
        "--topic",
        topic,
        *arguments,
    ]
    command += ["--partitions", str(partitions), "--consumers", str(consumers), "--records", str(records)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == STARTED, "the readers did not start"
        yield process
    finally:
        process.kill()
        process.wait()


def results_of(readers: subprocess.Popen[str]) -> dict[str, Any]:
    """The figures that the readers print at their end."""
    assert readers.stdout is not None
    results: dict[str, Any] = json.loads(readers.stdout.read())
    assert readers.wait(TIMEOUT_S) == 0
    return results


def _p99(cluster: Cluster) -> float:
    times = sorted(load(cluster.kafka, "latency", "latency", "--records", str(LATENCY_RECORDS))["received_ms"])  # type: ignore[arg-type]
    return float(times[int(len(times) * 0.99) - 1])


def _gateway_memory(cluster: Cluster) -> float:
    status = Path(f"/proc/{cluster.processes()['gateway-1']['pid']}/status").read_text()
    return float(status.split("VmRSS:")[1].split()[0]) * 1024


def _quoted(url: str) -> str:
    return urllib.parse.quote(url, safe="")
