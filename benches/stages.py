"""Where the time of a small Produce request goes: loads of small requests, with the time of each stage and its CPU."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping

from benches.report import Result
from benches.whole import LOAD_TIMEOUT_S, create_topic, scratch_cluster
from tests.testkit.clusters.cluster import Cluster
from tests.testkit.metrics import total

# Name of a stage: the histogram with its times, and the labels of it.
STAGES: dict[str, tuple[str, dict[str, str]]] = {
    "gateway, whole request": ("penstock_gateway_request_seconds", {"api": "Produce"}),
    "flusher, wait for the flush": ("penstock_flusher_wait_seconds", {"for": "flush"}),
    "flusher, wait for an upload": ("penstock_flusher_wait_seconds", {"for": "upload"}),
    "flusher, put": ("penstock_flusher_put_seconds", {}),
    "store, put": ("penstock_store_request_seconds", {"verb": "put"}),
    "flusher, wait for its turn": ("penstock_flusher_wait_seconds", {"for": "turn"}),
    "flusher, commit": ("penstock_flusher_commit_seconds", {}),
    "sequencer, proposal": ("penstock_sequencer_proposal_seconds", {}),
    "sequencer, append and tail": ("penstock_sequencer_append_seconds", {}),
    "sequencer, apply": ("penstock_sequencer_apply_seconds", {}),
}
LOADS: dict[str, tuple[str, ...]] = {
    "1 connection, 5 x 16 KB in flight": (),
    "4 connections, 5 x 16 KB in flight": ("--connections", "4", "--plain"),
    "1 connection, 1 x 100 B in flight": ("--depth", "1", "--record-bytes", "100"),
    "5,000 records/s of 1 KiB: 200 requests/s for 6 partitions": (
        *("--rate", "200", "--partitions", "6", "--batches", "6", "--records", "4", "--record-bytes", "1024"),
    ),
    "4 connections, 200 batches of 1 KiB in a request, 1,000 partitions": (
        *("--connections", "4", "--partitions", "1000", "--batches", "200", "--record-bytes", "1024"),
    ),
}


def stages(seconds: float = 5.0) -> Iterator[Result]:
    """The loads one after the other, each in a topic of its own."""
    with scratch_cluster() as cluster:
        for number, (name, arguments) in enumerate(LOADS.items()):
            topic = f"stages-{number}"
            create_topic(
                cluster,
                topic,
                int(arguments[arguments.index("--partitions") + 1]) if "--partitions" in arguments else 1,
            )
            raw_load(cluster, topic, 1.0, arguments)
            yield from _measured(cluster, topic, name, seconds, arguments)


def _measured(cluster: Cluster, topic: str, name: str, seconds: float, arguments: tuple[str, ...]) -> Iterator[Result]:
    before, cpu_before = cluster.metrics(), cluster.cpu_seconds()
    figures = raw_load(cluster, topic, seconds, arguments)
    after, cpu_after = cluster.metrics(), cluster.cpu_seconds()
    took_s, requests = figures["seconds"], figures["requests"]
    yield Result("stages", name, figures["mib"] / took_s, "MiB/s", more_is_better=True)
    yield Result("stages", "  requests", requests / took_s, "/s", more_is_better=True)
    yield Result("stages", "  request at the client, p50", figures["request_p50_ms"], "ms")
    yield Result("stages", "  request at the client, p99", figures["request_p99_ms"], "ms")
    for stage, (metric, labels) in STAGES.items():
        count, mean_ms = _mean_ms(before, after, metric, labels)
        yield Result("stages", f"  {stage}", mean_ms, "ms", details={"per s": count / took_s})
    for process, used_s in cpu_after.items():
        used_s -= cpu_before.get(process, 0.0)
        if used_s > 0.01 * took_s:
            details = {"of a core": used_s / took_s}
            yield Result("stages", f"  CPU of {process}", used_s / requests * 1e6, "us/request", details=details)


def _mean_ms(
    before: Mapping[str, float], after: Mapping[str, float], metric: str, labels: Mapping[str, str]
) -> tuple[float, float]:
    """How many times a histogram was observed between two looks, and their mean in ms."""

    def grown(suffix: str) -> float:
        name = f"{metric}_{suffix}"
        return total(dict(after), name, **labels) - total(dict(before), name, **labels)

    count = grown("count")
    return count, grown("sum") / count * 1000 if count else 0.0


def raw_load(cluster: Cluster, topic: str, seconds: float, arguments: tuple[str, ...]) -> dict[str, float]:
    """Run `benches.raw_load` in its own process, and return its figures."""
    command = [sys.executable, "-m", "benches.raw_load", "--bootstrap", cluster.kafka, "--topic", topic]
    flags = ("--seconds", str(seconds), *arguments)
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
