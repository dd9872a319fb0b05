"""Two sequencers over three real nats-servers that die, hang and return, while clients send commands all the time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import prometheus_client
import pytest
from msgspec import structs

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import CommitSegment, CreateTopic, SegmentCommitted
from penstock.contracts.ids import new_segment_id, new_topic_id
from penstock.contracts.subjects import journal_stream
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.journal import Journal
from penstock.runtime.nats.client import NatsConnection, NatsLimits
from penstock.runtime.nats.journal import JournalLimits
from penstock.runtime.nats.loss import LossLimits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.service import Sequencer
from tests.testkit.every_sender import EverySender
from tests.testkit.servers.connections import SLOW_MACHINE, connect_nats
from tests.testkit.servers.nats_cluster import NatsCluster, NatsNode, running_nats_cluster
from tests.testkit.waiting import TIMEOUT_S, until

CLUSTER = "test"
STREAM = journal_stream(CLUSTER)
TOPIC = new_topic_id(bytes(range(16)))
PARTITIONS = 3
PAUSE_S = 12.0  # longer than an election, and than the time until a client leaves a server that hangs
COMMIT_DEADLINE_S = 120.0  # elections take up to 9 s on an idle machine
clock = SystemClock()


class Sequencers:
    """Sequencers in this process; the connection of each prefers another node."""

    def __init__(self, cluster: NatsCluster, limits: NatsLimits) -> None:
        self._cluster = cluster
        self._limits = limits
        self._connections: list[NatsConnection] = []
        self.all: list[Sequencer] = []
        self.journals: list[Journal] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def connect(self, node: NatsNode) -> NatsConnection:
        connection = await connect_nats(self._cluster.url_from(node), name="test", limits=self._limits)
        self._connections.append(connection)
        return connection

    async def start(self, node: NatsNode) -> None:
        connection = await self.connect(node)
        journal = await connection.journal(CLUSTER, create=True, replicas=3)
        metrics = SequencerMetrics(prometheus_client.CollectorRegistry())
        author = f"sequencer-{len(self.all)}"
        made = Sequencer(
            journal=journal,
            bus=connection.bus,
            cluster=CLUSTER,
            author=author,
            clock=clock,
            entropy=SystemEntropy(),
            metrics=metrics,
        )
        self.all.append(made)
        self.journals.append(journal)
        self.tasks.append(asyncio.create_task(made.run()))
        await made.until_serving()

    async def client(self, node: NatsNode) -> SequencerClient:
        return EverySender((await self.connect(node)).bus, CLUSTER, clock)

    async def until_equal(self) -> None:
        """Return when all sequencers have applied the whole journal."""

        def is_equal() -> bool:
            return len({each.replica.applied_sequence for each in self.all}) == 1

        await until(is_equal)

    def running_hashes(self) -> set[tuple[int, bytes]]:
        snapshots = [each.replica.snapshot(CLUSTER, 1) for each in self.all]
        return {(each.state.sequence, each.hashes[-1]) for each in snapshots}

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for connection in self._connections:
            await connection.close()


class Load:
    """Commits segments of one record to one partition, one after the other, and measures the longest commit."""

    def __init__(self, client: SequencerClient, partition: int) -> None:
        self.offsets: list[int] = []
        self.longest_s = 0.0
        self._client = client
        self._partition = partition
        self.task = asyncio.create_task(self._commit_for_ever())

    async def _commit_for_ever(self) -> None:
        while True:
            started_s = time.monotonic()
            self.offsets.append(await self._commit())
            self.longest_s = max(self.longest_s, time.monotonic() - started_s)

    async def _commit(self) -> int:
        now_ms = clock.now_ms()
        runs = [BatchRun(TOPIC, self._partition, 16, [BatchMeta(100, 1, now_ms, -1, -1, -1, 0)])]
        segment_id = new_segment_id(now_ms, SystemEntropy().take(10))
        command = CommitSegment(now_ms, segment_id, 200, "flusher-1", "z1", runs)
        (outcome,) = await self._client.command([command], deadline_s=COMMIT_DEADLINE_S)
        assert isinstance(outcome, SegmentCommitted), outcome
        return outcome.runs[0][0].base_offset


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    with running_nats_cluster(tmp_path) as running:
        yield running


@contextlib.asynccontextmanager
async def running_sequencers(cluster: NatsCluster, limits: NatsLimits = SLOW_MACHINE) -> AsyncIterator[Sequencers]:
    made = Sequencers(cluster, limits)
    for node in cluster.nodes[:2]:
        await made.start(node)
    client = await made.client(cluster.nodes[2])
    await client.command([CreateTopic(clock.now_ms(), "t", TOPIC, PARTITIONS, {})], deadline_s=COMMIT_DEADLINE_S)
    yield made
    await made.end()


@pytest.fixture
async def sequencers(cluster: NatsCluster) -> AsyncIterator[Sequencers]:
    async with running_sequencers(cluster) as made:
        yield made


async def until_more(loads: list[Load], sequencers: Sequencers, count: int = 20) -> float:
    """Return the seconds until every load has more commits. Raises the error of a load or a sequencer that ended."""
    started_s = time.monotonic()
    wanted = [len(load.offsets) + count for load in loads]

    def have_more() -> bool:
        for task in [*sequencers.tasks, *(load.task for load in loads)]:
            if task.done():
                task.result()
        return all(len(load.offsets) >= least for load, least in zip(loads, wanted, strict=True))

    await until(have_more, COMMIT_DEADLINE_S)
    return time.monotonic() - started_s


async def leader_of(cluster: NatsCluster) -> NatsNode:
    leader = await until(lambda: cluster.stream_leader(STREAM))
    assert leader is not None
    return leader


async def serves_a_tail_and_leads_nothing(cluster: NatsCluster) -> NatsNode:
    """A node whose kill breaks a tail and not the journal, or else any node that serves a tail."""

    def both_tails() -> list[NatsNode]:
        found = list(cluster.consumer_nodes(STREAM).values())
        return found if len(found) >= 2 else []

    serving = await until(both_tails)
    leaders = [cluster.stream_leader(STREAM), cluster.meta_leader()]
    return next((node for node in serving if node not in leaders), serving[0])


@pytest.mark.slow
async def test_after_faults_of_nodes_every_acknowledged_command_is_there_once_and_no_sequencer_halts(
    cluster: NatsCluster, sequencers: Sequencers
) -> None:
    loads = [Load(await sequencers.client(node), number) for number, node in enumerate(cluster.nodes)]
    await until_more(loads, sequencers)

    leader = await leader_of(cluster)
    await asyncio.to_thread(leader.kill)
    print(f"the leader was killed: {await until_more(loads, sequencers):.1f} s")
    await asyncio.to_thread(leader.start)
    await until_more(loads, sequencers)

    serving = await serves_a_tail_and_leads_nothing(cluster)
    await asyncio.to_thread(serving.kill)
    print(f"a node that serves a tail was killed: {await until_more(loads, sequencers):.1f} s")
    await asyncio.to_thread(serving.start)
    await until_more(loads, sequencers)

    leader = await leader_of(cluster)
    leader.pause()
    ends_s = time.monotonic() + PAUSE_S
    print(f"the leader was paused: {await until_more(loads, sequencers):.1f} s")
    await until(lambda: time.monotonic() > ends_s)
    leader.resume()
    await until_more(loads, sequencers)

    await asyncio.to_thread(cluster.kill)
    await asyncio.to_thread(cluster.start)
    print(f"all were killed and started: {await until_more(loads, sequencers):.1f} s")

    for load in loads:
        load.task.cancel()
    await asyncio.gather(*(load.task for load in loads), return_exceptions=True)
    print(
        f"longest {max(load.longest_s for load in loads):.1f} s of {sum(len(each.offsets) for each in loads)} commits"
    )
    for load in loads:
        assert load.offsets == list(range(len(load.offsets))), "a commit is missing or stored twice"
    await sequencers.until_equal()
    assert len(sequencers.running_hashes()) == 1
    assert not any(task.done() for task in sequencers.tasks)


async def test_sequencers_halt_after_the_deletion_of_their_stream_and_create_no_other(cluster: NatsCluster) -> None:
    limits = structs.replace(SLOW_MACHINE, journal=JournalLimits(loss=LossLimits(proven_after_s=1.0)))
    async with running_sequencers(cluster, limits) as sequencers:
        connection = await sequencers.connect(cluster.nodes[0])
        await connection.bus.request(f"$JS.API.STREAM.DELETE.{STREAM}", b"", TIMEOUT_S)
        for task in sequencers.tasks:
            with pytest.raises(ExceptionGroup) as caught:
                await asyncio.wait_for(task, TIMEOUT_S)
            assert caught.group_contains(Halted, match=f"nats has no stream {STREAM}")
        answer = await connection.bus.request("$JS.API.STREAM.NAMES", b"", TIMEOUT_S)
    assert b'"streams":null' in answer or b'"streams":[]' in answer, answer
