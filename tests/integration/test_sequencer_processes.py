"""Sequencers as processes on a real nats-server: killed, restarted, drained, halted."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.contracts import codec, subjects
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import (
    CommandRequest,
    CommitOffsets,
    CommitSegment,
    CreateTopic,
    OffsetToCommit,
    SegmentCommitted,
    Tick,
)
from penstock.contracts.ids import TopicId, new_segment_id, new_topic_id
from penstock.contracts.queries.groups import GroupOffsetsQuery, GroupOffsetsView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.process.life import INVALID_EXIT_CODE
from tests.testkit.clusters.sequencers import CLUSTER, Process, Processes
from tests.testkit.every_sender import EverySender
from tests.testkit.loads.pausing import pause_process
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.waiting import TIMEOUT_S, until

TOPIC = new_topic_id(bytes(range(16)))
ATTEMPT_S = 10.0  # the timeout of a command: long enough to distinguish a lost command from a busy machine
LEFT_BEHIND = 1_000  # requests of 1 KB: the socket holds enough for many iterations of the event loop
clock = SystemClock()


@pytest.fixture
def processes(tmp_path: Path, nats_server: NatsServer) -> Iterator[Processes]:
    built = Processes(tmp_path, nats_server)
    yield built
    built.end()


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[SequencerClient]:
    connection = await connect_nats(nats_server.url, name="client")
    yield EverySender(connection.bus, CLUSTER, clock)
    await connection.close()


def create_topic(topic_id: TopicId = TOPIC) -> CreateTopic:
    return CreateTopic(clock.now_ms(), "t", topic_id, 1, {})


def commit_offset(offset: int) -> CommitOffsets:
    return CommitOffsets(clock.now_ms(), "g", -1, "", None, [OffsetToCommit("t", 0, offset, -1, "x" * 1_000)])


def failed_commands(process: Process) -> float:
    label = 'penstock_sequencer_requests_total{name="command",result="failed"} '
    return sum(float(line.removeprefix(label)) for line in metrics(process).splitlines() if label in line)


def metrics(process: Process) -> str:
    """The metrics page, or "" if it does not answer in time."""
    with contextlib.suppress(OSError):
        return process.get("/metrics")
    return ""


async def commit(client: SequencerClient, attempt_s: float = ATTEMPT_S) -> int:
    """Commit one segment with one record; return its offset."""
    now_ms = clock.now_ms()
    runs = [BatchRun(TOPIC, 0, 16, [BatchMeta(100, 1, now_ms, -1, -1, -1, 0)])]
    segment_id = new_segment_id(now_ms, SystemEntropy().take(10))
    command = CommitSegment(now_ms, segment_id, 200, "flusher-1", "z1", runs)
    (outcome,) = await client.command([command], deadline_s=TIMEOUT_S, attempt_s=attempt_s)
    assert isinstance(outcome, SegmentCommitted), outcome
    return outcome.runs[0][0].base_offset


class Load:
    """Commits segments one after the other, and measures the longest commit.

    A command without an answer is sent again after `attempt_s`.
    """

    def __init__(self, client: SequencerClient, attempt_s: float = ATTEMPT_S) -> None:
        self.offsets: list[int] = []
        self.longest_s = 0.0
        self._client, self._attempt_s = client, attempt_s
        self._task = asyncio.create_task(self._commit_for_ever())

    async def _commit_for_ever(self) -> None:
        while True:
            started_s = clock.monotonic_s()
            self.offsets.append(await commit(self._client, self._attempt_s))
            self.longest_s = max(self.longest_s, clock.monotonic_s() - started_s)

    async def until_more(self, count: int = 50) -> None:
        wanted = len(self.offsets) + count
        await until(lambda: len(self.offsets) >= wanted or self._task.done())
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.slow
async def test_killing_one_of_two_sequencers_costs_a_commit_one_attempt_at_most(
    processes: Processes, client: SequencerClient
) -> None:
    names = {"a": await processes.start("a"), "b": await processes.start("b")}
    await client.command([create_topic()], deadline_s=TIMEOUT_S)
    load = Load(client)
    await load.until_more()
    for name in ("a", "b", "a"):
        names[name].signal(signal.SIGKILL)
        await names[name].ended()
        await load.until_more()
        names[name] = await processes.start(name)
        await load.until_more()
    await load.stop()
    print(f"longest stall {load.longest_s:.3f} s over {len(load.offsets)} commits")
    assert load.longest_s < 2 * ATTEMPT_S
    assert load.offsets == list(range(len(load.offsets)))


async def test_commits_go_on_after_the_nats_server_was_killed_and_started_again(
    processes: Processes, client: SequencerClient, nats_server: NatsServer
) -> None:
    await asyncio.gather(processes.start("a"), processes.start("b"))
    await client.command([create_topic()], deadline_s=TIMEOUT_S)
    load = Load(client)
    await load.until_more()
    for _ in range(2):
        await asyncio.to_thread(nats_server.kill)
        await asyncio.to_thread(nats_server.start)
        await load.until_more()
    await load.stop()
    assert load.offsets == list(range(len(load.offsets)))
    assert all(each.process.poll() is None for each in processes.running)


async def test_after_a_kill_and_restart_all_sequencers_have_the_whole_state(
    processes: Processes, client: SequencerClient
) -> None:
    first = await processes.start("a")
    await client.command([create_topic()], deadline_s=TIMEOUT_S)
    assert [await commit(client) for _ in range(20)] == list(range(20))
    first.signal(signal.SIGKILL)
    await first.ended()
    await processes.start("a")
    view = await client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=TIMEOUT_S)
    assert [topic.topic_id for topic in view.topics] == [TOPIC]
    assert await commit(client) == 20


async def test_a_terminated_sequencer_finishes_and_exits_cleanly(processes: Processes, client: SequencerClient) -> None:
    leaving, _staying = await asyncio.gather(processes.start("a"), processes.start("b"))
    await client.command([create_topic()], deadline_s=TIMEOUT_S)
    load = Load(client, attempt_s=TIMEOUT_S)  # so a command that is lost ends it
    await load.until_more()
    leaving.signal(signal.SIGTERM)
    assert await leaving.ended() == 0, leaving.log.read_text()
    await load.until_more()
    await load.stop()
    assert load.offsets == list(range(len(load.offsets)))


async def test_a_sequencer_that_was_paused_journals_no_old_commands_from_its_socket(
    processes: Processes, client: SequencerClient, nats_server: NatsServer
) -> None:
    stopped, _other = await asyncio.gather(processes.start("a"), processes.start("b"))
    await client.command([create_topic()], deadline_s=TIMEOUT_S)
    pause_process(stopped.process.pid)
    connection = await connect_nats(nats_server.url, name="sender")
    request = codec.encode(CommandRequest([commit_offset(100)]))
    await asyncio.gather(
        *(
            connection.bus.publish(subjects.sequencer_command(CLUSTER, subjects.Sender.CLIENT), request)
            for _ in range(2 * LEFT_BEHIND)
        )
    )
    await connection.bus.flush()
    started_s = clock.monotonic_s()
    for offset in (200, 300, 400):
        await client.command([commit_offset(offset)], deadline_s=TIMEOUT_S)
    await until(lambda: clock.monotonic_s() > started_s + 2)
    stopped.signal(signal.SIGCONT)
    await until(lambda: failed_commands(stopped) > LEFT_BEHIND / 2)
    await connection.close()
    # After this both sequencers have applied all entries of the paused one.
    await client.command([Tick(clock.now_ms())], deadline_s=TIMEOUT_S)
    view = await client.query("group_offsets", GroupOffsetsQuery(0, "g", None), GroupOffsetsView, deadline_s=TIMEOUT_S)
    assert [each.offset for each in view.offsets] == [400]


async def test_a_sequencer_whose_journal_was_lost_reports_it_and_creates_no_other(
    processes: Processes, client: SequencerClient, nats_server: NatsServer, tmp_path: Path
) -> None:
    lasting = await processes.start("a")
    await client.command([create_topic()], deadline_s=TIMEOUT_S)
    await asyncio.to_thread(nats_server.kill)
    shutil.rmtree(tmp_path / "nats" / "jetstream")
    await asyncio.to_thread(nats_server.start)
    assert await lasting.ended() == 1
    assert "the sequencer halted after journal entry" in lasting.log.read_text()
    again = Process("b", tmp_path, nats_server, 0)
    processes.running.append(again)
    assert await again.ended() == INVALID_EXIT_CODE
    assert "the sequencer halted: the journal of cluster test" in again.log.read_text()
    assert again.log.read_text().count("\n") == 1, again.log.read_text()


async def test_a_sequencer_serves_its_metrics(processes: Processes, client: SequencerClient) -> None:
    process = await processes.start("a")
    await client.command([create_topic()], deadline_s=TIMEOUT_S, attempt_s=TIMEOUT_S)
    page = await until(lambda: metrics(process))
    assert "penstock_sequencer_applied_sequence" in page
    assert 'penstock_sequencer_requests_total{name="command",result="answered"} 1.0' in page
    assert "penstock_sequencer_halted 0.0" in page


async def test_without_a_nats_server_a_sequencer_reports_it_and_ends(processes: Processes, tmp_path: Path) -> None:
    await asyncio.to_thread(processes.server.kill)
    process = Process("a", tmp_path, processes.server, 0)
    processes.running.append(process)
    assert await process.ended() == 1
    assert process.log.read_text().startswith("sequencer: no nats server at")
