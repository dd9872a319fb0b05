"""The time of one commit at the sequencer, and the rate of many commits at once.

A commit is an append to JetStream, the sequencer's own tail, the apply, and the answer.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator

from benches.report import Result
from benches.whole import scratch_cluster
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import CommitSegment, CreateTopic
from penstock.contracts.ids import new_segment_id
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats.client import connect_nats
from tests.testkit.every_sender import EverySender

COMMITS = 1_000
PARTITIONS = 16
TOPIC_ID = b"t" * 16
REPLICAS = (1, 3)
IN_FLIGHT = 64  # commits, each of its own flusher
BATCHES_PER_PARTITION = 8
COMMITS_AT_ONCE = 10_000


def throughput() -> Iterator[Result]:
    """Many commits at once, through one replica and through three; each replica applies all of them."""
    for replicas in REPLICAS:
        with scratch_cluster("--sequencers", str(replicas)) as cluster:
            seconds, times_ms = asyncio.run(_many_commits(cluster.nats_url))
        rate = COMMITS_AT_ONCE / seconds
        through = f"through {replicas} replica{'s' if replicas > 1 else ''}, {IN_FLIGHT} in flight"
        yield Result("commit", f"commands {through}", rate, "/s")
        yield Result("commit", f"batches {through}", rate * PARTITIONS * BATCHES_PER_PARTITION, "/s")
        yield Result("commit", f"latency {through}, p50", statistics.median(times_ms), "ms")
        yield Result("commit", f"latency {through}, p99", sorted(times_ms)[int(len(times_ms) * 0.99)], "ms")


async def _many_commits(url: str) -> tuple[float, list[float]]:
    clock = SystemClock()
    connection = await connect_nats(url, name="bench")
    client = EverySender(connection.bus, "default", clock)
    await client.command([CreateTopic(clock.now_ms(), "commits", TOPIC_ID, PARTITIONS, {})], deadline_s=10)
    runs = _runs(clock.now_ms(), BATCHES_PER_PARTITION)
    numbers = iter(range(COMMITS_AT_ONCE))
    times_ms = []

    async def one_flusher() -> None:
        for number in numbers:
            started_s = time.perf_counter()
            await client.command([_commit(clock.now_ms(), number, runs)], deadline_s=30)
            times_ms.append((time.perf_counter() - started_s) * 1000)

    started_s = time.perf_counter()
    await asyncio.gather(*(one_flusher() for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - started_s
    await connection.close()
    return seconds, times_ms


def _runs(now_ms: int, batches: int) -> list[BatchRun]:
    metas = [BatchMeta(1000, 1, now_ms, -1, -1, -1, 0)] * batches
    return [BatchRun(TOPIC_ID, partition, 64 + partition * batches * 1000, metas) for partition in range(PARTITIONS)]


def _commit(now_ms: int, number: int, runs: list[BatchRun]) -> CommitSegment:
    segment_id = new_segment_id(now_ms, number.to_bytes(10, "big"))
    size_bytes = 64 + sum(meta.length for run in runs for meta in run.batches)
    return CommitSegment(now_ms, segment_id, size_bytes, "bench", "local", runs)


def latency() -> Iterator[Result]:
    """Commits of one batch in each of 16 partitions, answered by the sequencer of a running cluster."""
    with scratch_cluster() as cluster:
        times_ms = sorted(asyncio.run(_commit_times_ms(cluster.nats_url)))
    yield Result("commit", "latency over JetStream, p50", statistics.median(times_ms), "ms", 2)
    yield Result("commit", "latency over JetStream, p99", times_ms[int(COMMITS * 0.99) - 1], "ms", 10)


async def _commit_times_ms(url: str) -> list[float]:
    clock = SystemClock()
    connection = await connect_nats(url, name="bench")
    client = EverySender(connection.bus, "default", clock)
    await client.command([CreateTopic(clock.now_ms(), "commits", TOPIC_ID, PARTITIONS, {})], deadline_s=10)
    runs = _runs(clock.now_ms(), 1)
    times_ms = []
    for number in range(COMMITS):
        commit = _commit(clock.now_ms(), number, runs)
        started_s = time.perf_counter()
        await client.command([commit], deadline_s=10)
        times_ms.append((time.perf_counter() - started_s) * 1000)
    await connection.close()
    return times_ms
