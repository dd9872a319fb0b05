"""How long a commit takes at the sequencer: append to JetStream, own tail, apply, answer; one at a time."""

import asyncio
import json
import re
import statistics
import time
from collections.abc import Iterator

from benches.report import Result
from benches.whole import scratch_cluster
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import CommitSegment, CreateTopic
from penstock.contracts.ids import new_segment_id
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats_client import connect_nats
from penstock.runtime.sequencer_client import SequencerClient
from tests.testkit.cluster import Cluster

COMMITS = 1_000
PARTITIONS = 16
TOPIC_ID = b"t" * 16


def latency() -> Iterator[Result]:
    """Commits of one batch in each of 16 partitions, answered by the sequencer of a running cluster."""
    with scratch_cluster() as cluster:
        times_ms = sorted(asyncio.run(_commit_times_ms(_nats_url(cluster))))
    yield Result("commit", "latency over JetStream, p50", statistics.median(times_ms), "ms", 2)
    yield Result("commit", "latency over JetStream, p99", times_ms[int(COMMITS * 0.99) - 1], "ms", 10)


def _nats_url(cluster: Cluster) -> str:
    config = (cluster.data / "nats" / "nats-server.conf").read_text()
    found = re.search(r"^listen: (.*)$", config, re.MULTILINE)
    assert found is not None, "the nats-server's settings name no address"
    return f"nats://{json.loads(found[1])}"


async def _commit_times_ms(url: str) -> list[float]:
    clock = SystemClock()
    connection = await connect_nats(url, name="bench")
    client = SequencerClient(connection.bus, "default", clock)
    await client.command([CreateTopic(clock.now_ms(), "commits", TOPIC_ID, PARTITIONS, {})], deadline_s=10)
    runs = [
        BatchRun(TOPIC_ID, partition, 64 + partition * 1000, [BatchMeta(1000, 1, clock.now_ms(), -1, -1, -1, 0)])
        for partition in range(PARTITIONS)
    ]
    times_ms = []
    for number in range(COMMITS):
        segment_id = new_segment_id(clock.now_ms(), number.to_bytes(10, "big"))
        commit = CommitSegment(clock.now_ms(), segment_id, 64 + PARTITIONS * 1000, "bench", "local", runs)
        started_s = time.perf_counter()
        await client.command([commit], deadline_s=10)
        times_ms.append((time.perf_counter() - started_s) * 1000)
    await connection.close()
    return times_ms
