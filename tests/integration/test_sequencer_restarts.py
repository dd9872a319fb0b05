"""Snapshots of a real sequencer process, with a purged journal on a nats-server, and a store in a folder."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import CommitSegment, CreateTopic, SegmentCommitted
from penstock.contracts.ids import new_segment_id, new_topic_id
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.journal import Journal
from penstock.segment.keys import snapshots_prefix
from penstock_sequencer.core.state.limits import SNAPSHOTS_KEPT
from tests.testkit.clusters.sequencers import CLUSTER, Process, Processes
from tests.testkit.every_sender import EverySender
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.waiting import TIMEOUT_S, known, until

TOPIC = new_topic_id(bytes(range(16)))
SNAPSHOT_ENTRIES = 100
LOOK_S = 0.02
TRIMMED_WITHIN_S = 120  # the custodian's lease, two snapshots and their archive take some 10 s
clock = SystemClock()


class Cluster:
    """Sequencers with a client, their journal, and their store."""

    def __init__(self, processes: Processes, client: SequencerClient, journal: Journal) -> None:
        self.processes = processes
        self.client = client
        self.journal = journal
        self.committed = 0

    async def commit(self, count: int) -> None:
        """Commit segments with one record each, and assert that their offsets are dense."""
        for _ in range(count):
            now_ms = clock.now_ms()
            runs = [BatchRun(TOPIC, 0, 16, [BatchMeta(100, 1, now_ms, -1, -1, -1, 0)])]
            command = CommitSegment(now_ms, new_segment_id(now_ms, SystemEntropy().take(10)), 200, "f", "z1", runs)
            (outcome,) = await self.client.command([command], deadline_s=TIMEOUT_S)
            assert isinstance(outcome, SegmentCommitted), outcome
            assert outcome.runs[0][0].base_offset == self.committed
            self.committed += 1

    async def work_until_trimmed(self) -> int:
        """Commit until the journal was purged; return its first sequence."""
        async with asyncio.timeout(TRIMMED_WITHIN_S):
            while (first := await self.first_sequence()) == 1:
                await self.commit(SNAPSHOT_ENTRIES // 10)
        return first

    async def until_trimming_is_over(self) -> None:
        """Return after the purge and the deletion of older snapshots that follows it."""
        async with asyncio.timeout(TRIMMED_WITHIN_S):
            while not await self._is_trimmed():
                await asyncio.sleep(LOOK_S)

    async def _is_trimmed(self) -> bool:
        first_sequence = await self.first_sequence()
        sequences = [int(path.name) for path in self.snapshots()]
        return len(sequences) == SNAPSHOTS_KEPT and sequences[0] + 1 == first_sequence

    async def first_sequence(self) -> int:
        return (await known(self.journal.describe)).first_sequence

    async def kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)
        await process.ended()

    def snapshots(self) -> list[Path]:
        """The files of the snapshots, the oldest first."""
        return sorted((self.processes.folder / "objects" / snapshots_prefix("", CLUSTER)).iterdir())


@pytest.fixture
def processes(tmp_path: Path, nats_server: NatsServer) -> Iterator[Processes]:
    built = Processes(tmp_path, nats_server, snapshot_entries=str(SNAPSHOT_ENTRIES))
    yield built
    built.end()


@pytest.fixture
async def trimmed(processes: Processes, nats_server: NatsServer) -> AsyncIterator[Cluster]:
    """A cluster whose journal was purged, and whose only sequencer was killed after that."""
    first = await processes.start("a")
    connection = await connect_nats(nats_server.url, name="client")
    client = EverySender(connection.bus, CLUSTER, clock)
    cluster = Cluster(processes, client, await connection.journal(CLUSTER, create=False))
    await client.command([CreateTopic(clock.now_ms(), "t", TOPIC, 1, {})], deadline_s=TIMEOUT_S)
    await cluster.work_until_trimmed()
    await cluster.commit(10)
    await cluster.until_trimming_is_over()
    await cluster.kill(first)
    yield cluster
    await connection.close()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def is_custodian(process: Process) -> bool:
    """Whether the process reports that it is the custodian; False without an answer."""
    with contextlib.suppress(OSError):
        return process.metric("custodian") == 1
    return False


async def test_a_restart_begins_with_the_newest_snapshot_of_a_purged_journal(trimmed: Cluster) -> None:
    info = await known(trimmed.journal.describe)
    assert info.first_sequence > SNAPSHOT_ENTRIES
    assert info.first_sequence == int(trimmed.snapshots()[0].name) + 1
    again = await trimmed.processes.start("b")
    newest = int(trimmed.snapshots()[-1].name)
    assert again.metric("entries_total") <= again.metric("applied_sequence") - newest + 1
    view = await trimmed.client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=TIMEOUT_S)
    assert [topic.name for topic in view.topics] == ["t"]
    await trimmed.commit(10)
    # The new process becomes the custodian when the lease of the killed one ends, and continues its work.
    await until(lambda: is_custodian(again))
    before = info.first_sequence
    async with asyncio.timeout(TRIMMED_WITHIN_S):
        while await trimmed.first_sequence() == before:
            await trimmed.commit(SNAPSHOT_ENTRIES // 10)
    await trimmed.until_trimming_is_over()
    assert again.metric("snapshot_failures_total") == 0


async def test_a_damaged_newest_snapshot_is_reported_and_the_one_before_it_is_used(trimmed: Cluster) -> None:
    newest = trimmed.snapshots()[-1]
    damage(newest)
    again = await trimmed.processes.start("b")
    log = again.log.read_text()
    assert "snapshot_damaged" in log
    assert newest.name in log
    await trimmed.commit(10)


async def test_without_a_good_snapshot_a_purged_journal_halts_and_nothing_is_changed(trimmed: Cluster) -> None:
    for path in trimmed.snapshots():
        damage(path)
    before, snapshots = await known(trimmed.journal.describe), trimmed.snapshots()
    process = trimmed.processes.begin("b")
    assert await process.ended() == 1
    log = process.log.read_text()
    assert f"there is no good snapshot, but journal entries 1 to {before.first_sequence - 1} are gone" in log
    assert await known(trimmed.journal.describe) == before
    assert trimmed.snapshots() == snapshots
