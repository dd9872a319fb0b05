"""One run of the fuzzer against a cluster: hostile clients, the canary, and the memory before and after."""

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.kafkawire.api import API_TABLE
from tests.testkit.clusters.cluster import Cluster
from tests.testkit.fuzz.canary import Result
from tests.testkit.fuzz.hostile_client import HostileClient
from tests.testkit.fuzz.memory import HAS_STATE, Memory, grown, measure, restart_with_state, until_served
from tests.testkit.fuzz.values import TOPICS

CANARY_TOPIC = "canary"
HOSTILE_CLIENTS = 8
TOPIC_TIMEOUT_S = 60.0
CANARY_END_TIMEOUT_S = 90.0
SETTLE_S = 15.0  # in which the gateway gives freed memory back, before memory is measured again
# First use makes codecs, caches and heaps. So memory after the run is compared with that after its first part.
WARM_UP_SHARE, WARM_UP_S_MAX = 0.2, 180.0
GROWTH_SECONDS_MIN = 600.0  # in a shorter run memory may grow
LATENCY_MS_MAX = 1_000.0
TURNS_OF_AN_ANSWER = 20
TRACES = ("Traceback", "request_failed")
STALL = "process_stalled"


class Report(msgspec.Struct, kw_only=True):
    """The result of a run."""

    seed: int
    seconds: float
    sent: Counter[str]
    wrong: list[str]
    canary: Result
    restarts: dict[str, int]
    before: dict[str, Memory]
    warm: dict[str, Memory]
    after: dict[str, Memory]
    restarted: dict[str, Memory]  # of the process with the state, as a new one has it; empty after a short run
    traces: list[str]
    stalls: list[str]  # a busy machine also causes them

    @property
    def findings(self) -> list[str]:
        """All errors. None of them depends on the speed of the machine."""
        died = [f"{name} was started again {count} times" for name, count in self.restarts.items() if count]
        return [*died, *self.canary.failures, *self.wrong, *self.traces, *self.grown]

    @property
    def late(self) -> list[str]:
        """The canary's requests that took too long, if the machine has time for the run, as with `make fuzz`.

        A gateway has a second to confirm a request to the flusher, and else closes the connection (ADR 0024).
        """
        slowest_ms = max(self.latencies_ms, default=0.0)
        slow = [f"an answer took {slowest_ms:.0f} ms"] if slowest_ms > self.limit_ms else []
        return [*slow, *self.canary.undecided] if self.limit_ms == LATENCY_MS_MAX else slow

    @property
    def grown(self) -> list[str]:
        """The processes whose memory grew too much; empty after a short run."""
        return grown(self.warm | self.restarted, self.after) if self.seconds >= GROWTH_SECONDS_MIN else []

    @property
    def limit_ms(self) -> float:
        """The longest time that an answer to the canary may take: 1 s on a machine that has time for its processes.

        The canary's own timers show how long a process of this machine may wait for a processor. An answer passes
        through four processes, each several times.
        """
        return max(LATENCY_MS_MAX, TURNS_OF_AN_ANSWER * max(self.canary.timer_lags_ms, default=0.0))

    @property
    def latencies_ms(self) -> list[float]:
        """Of all requests of the canary, in order of size."""
        return sorted(itertools.chain(*self.canary.latencies_ms.values()))


def run_fuzzer(cluster: Cluster, seconds: float, seed: int) -> Report:
    """Run hostile clients for so long, and return the report. The cluster must be fresh."""
    _prepare(cluster)
    arguments = ["-m", "tests.testkit.fuzz.canary", cluster.kafka, CANARY_TOPIC]
    before = measure(cluster)
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE) as canary:
        try:
            warm_up_s = min(seconds * WARM_UP_SHARE, WARM_UP_S_MAX)
            first_sent, first_wrong = asyncio.run(_attack(cluster, warm_up_s, f"{seed}-warm"))
            _settle(cluster, seconds)
            warm = measure(cluster)
            sent, wrong = asyncio.run(_attack(cluster, seconds - warm_up_s, str(seed)))
        finally:
            canary.send_signal(signal.SIGTERM)
        printed, _ = canary.communicate(timeout=CANARY_END_TIMEOUT_S)
    _settle(cluster, seconds)
    after, restarts = measure(cluster), {name: each["restarts"] for name, each in cluster.processes().items()}
    traces, stalls = list(_lines(cluster.data, *TRACES)), list(_lines(cluster.data, STALL))
    return Report(
        seed=seed,
        seconds=seconds,
        sent=first_sent + sent,
        wrong=first_wrong + wrong,
        canary=msgspec.json.decode(printed, type=Result),
        restarts=restarts,
        before=before,
        warm=warm,
        after=after,
        restarted=_restarted(cluster) if seconds >= GROWTH_SECONDS_MIN else {},
        traces=traces,
        stalls=stalls,
    )


def _settle(cluster: Cluster, seconds: float) -> None:
    """Wait until the requests of hostile clients have ended, if the memory of this run is compared."""
    if seconds >= GROWTH_SECONDS_MIN:
        until_served(cluster)
    time.sleep(SETTLE_S)


def _restarted(cluster: Cluster) -> dict[str, Memory]:
    restart_with_state(cluster)
    time.sleep(SETTLE_S)
    return {HAS_STATE: measure(cluster)[HAS_STATE]}


async def _attack(cluster: Cluster, seconds: float, seed: str) -> tuple[Counter[str], list[str]]:
    host, _, port = cluster.kafka.rpartition(":")
    clients = [HostileClient(host, int(port), random.Random(f"{seed}-{number}")) for number in range(HOSTILE_CLIENTS)]
    ends_s = asyncio.get_running_loop().time() + seconds
    async with asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(client.run(ends_s))
    return sum((client.sent for client in clients), Counter()), [each for client in clients for each in client.wrong]


def _prepare(cluster: Cluster) -> None:
    """Create the topics; give the canary's topic and client settings that hostile clients do not change."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    configs = {"max.message.bytes": "1000000", "retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    canary = NewTopic(CANARY_TOPIC, 1, config=configs)
    for future in admin.create_topics([canary, *(NewTopic(topic, 3) for topic in TOPICS)]).values():
        future.result(TOPIC_TIMEOUT_S)


def _lines(data: Path, *texts: str) -> Iterator[str]:
    """The lines of all logs with one of the texts."""
    for log in sorted((data / "logs").glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if any(text in line for text in texts):
                yield f"{log.name}: {line[:4000]}"


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the ordered values lies."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def table(report: Report) -> str:
    """The report for a terminal."""
    lines = [f"seed {report.seed}, {report.seconds:.0f} s, {len(API_TABLE)} APIs"]
    lines += [f"  {count:>9,}  {name}" for name, count in report.sent.most_common()]
    lines.append(f"canary: {report.canary.rounds:,} rounds; latency in ms: p50, p99, max")
    rows = {**report.canary.latencies_ms, "all": report.latencies_ms, "own timers": report.canary.timer_lags_ms}
    for name, values in rows.items():
        ordered = sorted(values)
        shown = "".join(f"{percentile(ordered, share):9.1f}" for share in (0.5, 0.99, 1.0))
        lines.append(f"  {name:<12}{shown}")
    lines.append(f"  the slowest may take {report.limit_ms:.0f}")
    lines += [f"  late: {each}" for each in report.late]
    lines.append(
        "memory in MiB: before, after the first part, at the end, restarted; thousands of blocks; without caches"
    )
    for name in report.before:
        moments = (report.before, report.warm, report.after, report.restarted)
        measured = [parts[name] for parts in moments if name in parts]
        sizes = "".join(f"{each.resident_bytes / 2**20:8.1f}" for each in measured)
        blocks = "".join(f"{each.blocks / 1000:8.0f}" for each in measured if each.blocks)
        lines.append(f"  {name:<16}{sizes}{blocks}{report.after[name].own_bytes / 2**20:8.1f}")
    lines += [f"  {stall}" for stall in report.stalls]
    lines.append(f"findings: {len(report.findings)}")
    lines += [f"  {finding}" for finding in dict.fromkeys(report.findings)]
    return "\n".join(lines)
