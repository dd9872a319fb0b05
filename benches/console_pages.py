"""The time of the console's pages with 10,000 topics and 15,000 groups."""

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from statistics import median

from benches.report import Result
from benches.whole import scratch_cluster
from penstock.contracts.commands import CommitOffsets, CreateTopic, OffsetToCommit
from penstock.contracts.ids import new_topic_id
from penstock.contracts.subjects import Sender
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.nats.client import connect_nats
from tests.testkit.clusters.cluster import Cluster, wait_until

TOPICS, GROUPS, PARTITIONS = 10_000, 15_000, 3
COMMANDS_PER_ENTRY = 200
READS = 15
PAGE_BUDGET_S = 1.0
DEADLINE_S = 30.0
PATHS = (
    "/",
    "/topics",
    "/topics?sort=-lag&page=7",
    "/topics?q=77",
    "/topics/topic-00005",
    "/topics/topic-00005/messages",
    "/groups",
    "/groups?sort=name&page=200",
    "/groups/group-00005",
    "/transactions",
    "/clients",
    "/storage",
    "/cluster",
    "/security",
)


def pages() -> Iterator[Result]:
    """The first page after a pause, then each page several times: the median, and the slowest."""
    with scratch_cluster() as cluster:
        asyncio.run(_fill(cluster))
        wait_until(lambda: b"Overview" in _read(cluster, "/"), DEADLINE_S, "the console")
        began_s = time.perf_counter()
        _read(cluster, "/groups")
        name = f"{TOPICS:,} topics, {GROUPS:,} groups: first page"
        yield Result("console", name, time.perf_counter() - began_s, "s", PAGE_BUDGET_S)
        for path in PATHS:
            taken_s = sorted(_timed(cluster, path) for _ in range(READS))
            details = {"median s": median(taken_s)}
            yield Result("console", f"slowest of {READS}: {path}", taken_s[-1], "s", PAGE_BUDGET_S, details=details)


async def _fill(cluster: Cluster) -> None:
    connection = await connect_nats(cluster.nats_url, name="bench")
    clock, entropy = SystemClock(), SystemEntropy()
    client = SequencerClient(connection.bus, "default", clock, sender=Sender.CLIENT)
    for first in range(0, TOPICS, COMMANDS_PER_ENTRY):
        numbers = range(first, first + COMMANDS_PER_ENTRY)
        creations = [
            CreateTopic(clock.now_ms(), f"topic-{each:05}", new_topic_id(entropy.take(16)), PARTITIONS, {})
            for each in numbers
        ]
        await client.command([*creations], deadline_s=DEADLINE_S)
    for first in range(0, GROUPS, COMMANDS_PER_ENTRY):
        commits = [_commit(clock.now_ms(), each) for each in range(first, first + COMMANDS_PER_ENTRY)]
        await client.command([*commits], deadline_s=DEADLINE_S)
    await connection.close()


def _commit(now_ms: int, group: int) -> CommitOffsets:
    offsets = [OffsetToCommit(f"topic-{group % TOPICS:05}", each, 0, -1, "") for each in range(PARTITIONS)]
    return CommitOffsets(now_ms, f"group-{group:05}", -1, "", None, offsets)


def _timed(cluster: Cluster, path: str) -> float:
    began_s = time.perf_counter()
    _read(cluster, path)
    return time.perf_counter() - began_s


def _read(cluster: Cluster, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{cluster.http}{path}", timeout=DEADLINE_S) as answer:
        body: bytes = answer.read()
        return body
