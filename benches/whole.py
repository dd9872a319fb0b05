"""The whole system under load: throughput, CPU per MiB by process, store requests, latency."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic

from benches.report import Result
from penstock.objectstore import folder_address
from tests.testkit.clusters.cluster import Cluster, running

LOAD_TIMEOUT_S = 600.0
TUNED = ("batch.size=1000000", "linger.ms=100", "queue.buffering.max.kbytes=524288", "acks=all")
TUNED_MESSAGES = ("queue.buffering.max.messages=1000000", "batch.num.messages=100000", "message.max.bytes=1000000000")
# librdkafka 2.16 counts messages instead of requests. An idempotent producer with five or more records per batch
# has one request in flight per partition, for every setting. With one record in each batch it has five.
FIVE_IN_FLIGHT = ("batch.size=16384", "max.in.flight.requests.per.connection=5")
STOCK_IDEMPOTENT = ("enable.idempotence=true", *FIVE_IN_FLIGHT)
ONE_RECORD_BATCHES = ("--record-bytes", "16000", "--partitions", "1")


class Run(msgspec.Struct, frozen=True):
    """The cost of one load: MiB moved, seconds, CPU seconds by process, PUTs and GETs."""

    mib: float
    seconds: float
    cpu_s: dict[str, float]
    puts: float
    gets: float

    @property
    def mb_per_s(self) -> float:
        """Throughput in 10^6 bytes per second."""
        return self.mib * 2**20 / 1e6 / self.seconds

    def ms_per_mib(self, *names: str) -> float:
        """CPU of the processes whose names begin with one of these, in ms per MiB."""
        used = sum(seconds for name, seconds in self.cpu_s.items() if name.startswith(names))
        return used * 1000 / self.mib


def load(bootstrap: str, kind: str, topic: str, *arguments: str, settings: Sequence[str] = ()) -> dict[str, float]:
    """Run `benches.load` in its own process, and return its figures."""
    flags = [flag for setting in settings for flag in ("--set", setting)]
    command = [sys.executable, "-m", "benches.load", kind, "--bootstrap", bootstrap, "--topic", topic]
    done = subprocess.run([*command, *arguments, *flags], capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def measured(cluster: Cluster, kind: str, topic: str, *arguments: str, settings: Sequence[str] = ()) -> Run:
    """Run a load, and measure its cost for the cluster."""
    cpu, puts, gets = cluster.cpu_seconds(), requests(cluster, "put"), requests(cluster, "get")
    answer = load(cluster.kafka, kind, topic, *arguments, settings=settings)
    used = {name: seconds - cpu.get(name, 0.0) for name, seconds in cluster.cpu_seconds().items()}
    return Run(
        answer["mib"],
        answer["seconds"],
        used,
        requests(cluster, "put") - puts,
        requests(cluster, "get") - gets,
    )


def requests(cluster: Cluster, verb: str) -> float:
    """Store requests of one kind so far, by all processes; a ranged read is a get."""
    verbs = ("get", "get_range") if verb == "get" else (verb,)
    return sum(cluster.metric("penstock_store_requests_total", verb=verb) for verb in verbs)


def create_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    """Create a topic; it exists when this returns."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


def throughput(mib: int) -> Iterator[Result]:
    """Tuned, default and stock idempotent producers, then catch-up reads."""
    with scratch_cluster("--separate") as cluster:  # the CPU is that of each service
        create_topic(cluster, "warm", 16)
        # A first load, so that the processes have touched their memory: on a virtual machine that costs more than the
        # work itself.
        load(cluster.kafka, "produce", "warm", "--mib", "1024", settings=(*TUNED, *TUNED_MESSAGES))
        create_topic(cluster, "tuned", 16)
        tuned = measured(cluster, "produce", "tuned", "--mib", str(mib), settings=(*TUNED, *TUNED_MESSAGES))
        yield from _produced("tuned: 1 MB batches, linger 100 ms, 16 partitions", tuned, 250)
        caught_up = measured(cluster, "consume", "tuned")
        yield Result("consume", "catch-up, 16 partitions", caught_up.mb_per_s, "MB/s", more_is_better=True)
        yield Result("consume", "gateway CPU", caught_up.ms_per_mib("gateway"), "ms/MiB")
        yield Result("consume", "gateway and cacher CPU", caught_up.ms_per_mib("gateway", "cacher"), "ms/MiB")
        yield Result("consume", "GETs of catch-up reads", caught_up.gets / (caught_up.mib / 1024), "per GiB")
        create_topic(cluster, "default", 16)
        yield from _produced("default settings", measured(cluster, "produce", "default", "--mib", str(mib // 4)), None)
        create_topic(cluster, "stock", 1)
        for name, budget, arguments, settings in (
            ("idempotent, 16 KB batches, five in flight", 10, ONE_RECORD_BATCHES, STOCK_IDEMPOTENT),
            (
                "not idempotent, 16 KB batches of 1 KiB records, five in flight",
                None,
                ("--partitions", "1"),
                FIVE_IN_FLIGHT,
            ),
        ):
            run = measured(cluster, "produce", "stock", "--mib", str(mib // 16), *arguments, settings=settings)
            yield from _produced(f"one producer, {name}", run, budget)
        yield _small_requests(cluster)


def _small_requests(cluster: Cluster) -> Result:
    """The cost of one request with one record of 100 bytes for the gateway."""
    create_topic(cluster, "small", 1)
    arguments = ("--mib", "4", "--record-bytes", "100", "--partitions", "1")
    run = measured(cluster, "produce", "small", *arguments, settings=("batch.num.messages=1", "linger.ms=0"))
    count = run.mib * 2**20 / 100
    used_s = sum(seconds for name, seconds in run.cpu_s.items() if name.startswith("gateway"))
    return Result("produce", "gateway CPU per request of one small batch", used_s / count * 1e6, "us", 150)


def timer_alone() -> Iterator[Result]:
    """The stock idempotent producer without the quiet flush, for comparison."""
    with scratch_cluster(PENSTOCK_QUIET_PUTS_PER_SECOND="0.001") as cluster:
        create_topic(cluster, "stock", 1)
        run = measured(cluster, "produce", "stock", "--mib", "8", *ONE_RECORD_BATCHES, settings=STOCK_IDEMPOTENT)
        yield Result(
            "produce", "the idempotent producer without quiet flush", run.mb_per_s, "MB/s", more_is_better=True
        )


def latency(records: int) -> Iterator[Result]:
    """Send to acknowledgement and send to receipt, with the default flush and with a short one."""
    for flush_ms in (250, 5):
        with scratch_cluster("--flush-ms", str(flush_ms)) as cluster:
            create_topic(cluster, "latency", 1)
            answer = load(cluster.kafka, "latency", "latency", "--records", str(records))
            for what in ("acknowledged", "received"):
                times = sorted(answer[f"{what}_ms"])
                name = f"flush {flush_ms} ms, send to {what}"
                yield Result("latency", f"{name}, p50", statistics.median(times), "ms")
                yield Result("latency", f"{name}, p99", times[int(len(times) * 0.99) - 1], "ms")


def _produced(name: str, run: Run, budget_mb_per_s: float | None) -> Iterator[Result]:
    yield Result("produce", name, run.mb_per_s, "MB/s", budget_mb_per_s, more_is_better=True)
    tuned = budget_mb_per_s == 250
    yield Result("produce", "  gateway CPU", run.ms_per_mib("gateway"), "ms/MiB", 1.5 if tuned else None)
    yield Result("produce", "  flusher CPU", run.ms_per_mib("flusher"), "ms/MiB")
    yield Result("produce", "  nats-server CPU", run.ms_per_mib("nats-server"), "ms/MiB")
    yield Result("produce", "  sequencer CPU", run.ms_per_mib("sequencer"), "ms/MiB")
    path = run.ms_per_mib("gateway", "nats-server", "flusher")
    yield Result("produce", "  whole path CPU (gateway, NATS, flusher)", path, "ms/MiB", 6 if tuned else None)
    yield Result("produce", "  PUTs", run.puts / (run.mib / 1024), "per GiB", 130 if tuned else None)


@contextlib.contextmanager
def scratch_cluster(*arguments: str, uses_cachers: bool = False, **environment: str) -> Iterator[Cluster]:
    """A cluster in a temporary folder; `environment` is added to the environment of its processes.

    With `uses_cachers` gateways read the store through cachers, as they read one that is not on their machine.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        previous = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            data = Path(folder) / "data"
            store = ("--store", f"{folder_address(data / 'objects')}?local_reads=off") if uses_cachers else ()
            with running(data, *arguments, *store) as cluster:
                yield cluster
        finally:
            for name, value in previous.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
