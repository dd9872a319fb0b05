"""The contract of every journal, checked with the one in memory and with JetStream on one and on three servers."""

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest
from msgspec import structs

from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.subjects import journal_stream, journal_subject
from penstock.runtime.journal import Journal, JournalEntry, JournalGap, JournalLost
from penstock.runtime.nats.client import NatsConnection, NatsLimits
from penstock.runtime.nats.journal import JournalLimits
from penstock.runtime.nats.loss import LossLimits
from penstock.runtime.nats.stream import MESSAGE_NOT_FOUND, STREAM_NAME_TAKEN, STREAM_NOT_FOUND
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.servers.connections import SLOW_MACHINE, connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.servers.nats_cluster import NatsCluster, running_nats_cluster
from tests.testkit.sim.environment.journal import SimJournal, SimJournalStore
from tests.testkit.sim.environment.wire import Latency, Wire
from tests.testkit.waiting import known

TIMEOUT_S = 60.0  # after a kill of all three servers there may be two elections of up to 9 s
LOSS_PROVEN_EARLY = structs.replace(SLOW_MACHINE, journal=JournalLimits(loss=LossLimits(proven_after_s=0.3)))
DONE_ALREADY = (STREAM_NAME_TAKEN, STREAM_NOT_FOUND, MESSAGE_NOT_FOUND)  # possible errors of a retry


class MemoryWorld:
    replicas = 1

    def __init__(self) -> None:
        self._store = self._make_store()

    def _make_store(self) -> MemoryJournalStore:
        return MemoryJournalStore()

    async def open(self, *, doubts_loss: bool = False) -> Journal:
        """A handle of the journal; with `doubts_loss` a loss of entries counts as proven only after a long time."""
        return MemoryJournal(self._store)

    async def outage(self) -> None:
        self._store.set_available(False)

    async def recovery(self) -> None:
        self._store.set_available(True)

    async def drop(self, sequence: int) -> None:
        self._store.drop(sequence)

    async def lose(self) -> None:
        self._store.lose()

    async def make_again(self) -> None:
        self._store.make_again()

    async def close(self) -> None:
        pass


class SimulatedWorld(MemoryWorld):
    """The simulator's journal, with latency but without faults."""

    def _make_store(self) -> MemoryJournalStore:
        self._simulated = SimJournalStore(Wire(asyncio.get_running_loop(), random.Random(1), Latency(0.0005)))
        return self._simulated

    async def open(self, *, doubts_loss: bool = False) -> Journal:
        return SimJournal(self._simulated)


class NatsWorld:
    _numbers = itertools.count()

    def __init__(self, server: NatsServer | NatsCluster, replicas: int) -> None:
        self.replicas = replicas
        self._server = server
        self._cluster = f"contract-{next(self._numbers)}"
        self._connections: list[NatsConnection] = []

    async def _connect(self, limits: NatsLimits = SLOW_MACHINE) -> NatsConnection:
        self._connections.append(await connect_nats(self._server.url, name="contract", limits=limits))
        return self._connections[-1]

    async def open(self, *, doubts_loss: bool = False) -> Journal:
        connection = await self._connect(SLOW_MACHINE if doubts_loss else LOSS_PROVEN_EARLY)
        # The test creates the stream, so that it can delete single entries: our own stream denies that.
        stream, subjects = journal_stream(self._cluster), [journal_subject(self._cluster)]
        settings = {"name": stream, "subjects": subjects, "num_replicas": self.replicas}
        await self._api("STREAM.CREATE", settings)
        return await connection.journal(self._cluster, create=False, replicas=self.replicas)

    async def outage(self) -> None:
        # A killed cluster needs two elections to recover. So the cluster is only paused here, which is an outage too.
        await asyncio.to_thread(self._server.pause if isinstance(self._server, NatsCluster) else self._server.kill)

    async def recovery(self) -> None:
        await asyncio.to_thread(self._server.heal if isinstance(self._server, NatsCluster) else self._server.start)

    async def drop(self, sequence: int) -> None:
        await self._api("STREAM.MSG.DELETE", {"seq": sequence})

    async def lose(self) -> None:
        await self._api("STREAM.DELETE", {})

    async def make_again(self) -> None:
        connection = await self._connect()
        await self._api("STREAM.DELETE", {})
        await connection.journal(self._cluster, create=True, replicas=self.replicas)

    async def _api(self, verb: str, question: dict[str, object]) -> None:
        """Call the JetStream API, with retries while the servers of a cluster do not know each other yet."""
        subject = f"$JS.API.{verb}.{journal_stream(self._cluster)}"
        request = json.dumps(question).encode()

        async def attempt() -> None:
            error = json.loads(await self._connections[0].bus.request(subject, request, 5.0)).get("error", {})
            if error and error.get("err_code") not in DONE_ALREADY:
                raise Unavailable(f"not done yet: {error}")

        await known(attempt)

    async def close(self) -> None:
        if isinstance(self._server, NatsCluster):
            await self.recovery()  # later tests use the cluster even if this test failed during an outage
        for connection in self._connections:
            await connection.close()


World = MemoryWorld | NatsWorld


@pytest.fixture(scope="module")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with running_nats_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(params=["memory", "simulated", "nats", pytest.param("nats-cluster", marks=pytest.mark.slow)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made: World = MemoryWorld()
    if request.param == "simulated":
        made = SimulatedWorld()
    if request.param == "nats":
        made = NatsWorld(request.getfixturevalue("nats_server"), 1)
    elif request.param == "nats-cluster":
        made = NatsWorld(request.getfixturevalue("nats_cluster"), 3)
    yield made
    await made.close()


class Reader:
    """Tails a journal in a task and keeps the entries."""

    def __init__(self, journal: Journal, after: int = 0) -> None:
        self.entries: list[JournalEntry] = []
        self.largest_group = 0
        self.task = asyncio.create_task(self._read(journal, after))

    async def _read(self, journal: Journal, after: int) -> None:
        async for group in journal.tail(after):
            assert group, "a group is empty"
            self.largest_group = max(self.largest_group, len(group))
            self.entries.extend(group)

    @property
    def sequences(self) -> list[int]:
        return [entry.sequence for entry in self.entries]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.002)

    async def until_sequence(self, sequence: int) -> None:
        await self.until(lambda: bool(self.entries) and self.entries[-1].sequence >= sequence)

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def fill(journal: Journal, count: int, prefix: str = "e") -> None:
    for start in range(0, count, 100):
        numbers = range(start, min(start + 100, count))
        await asyncio.gather(*(append(journal, f"{prefix}{n}") for n in numbers))


async def append(journal: Journal, entry_id: str, data: bytes | None = None) -> int:
    """Append an entry, with retries until it is acknowledged."""
    return await known(lambda: journal.append(entry_id, entry_id.encode() if data is None else data))


async def test_a_new_journal_holds_nothing_and_starts_at_one(world: World) -> None:
    journal = await world.open()
    info = await known(journal.describe)
    assert (info.first_sequence, info.last_sequence, info.replicas) == (1, 0, world.replicas)
    assert await append(journal, "first", b"x") == 1
    info = await known(journal.describe)
    assert (info.first_sequence, info.last_sequence) == (1, 1)


async def test_every_handle_describes_the_same_stream(world: World) -> None:
    one, other = await world.open(), await world.open()
    await append(one, "a", b"x")
    assert await known(one.describe) == await known(other.describe)


async def test_the_end_of_the_journal_covers_every_stored_entry(world: World) -> None:
    one, other = await world.open(), await world.open()
    assert await known(other.last_sequence) == 0
    for sequence in range(1, 21):
        await append(one, f"e{sequence}")
        assert await known(other.last_sequence) == sequence


async def test_the_end_of_a_journal_that_does_not_answer_is_unavailable(world: World) -> None:
    journal = await world.open(doubts_loss=True)
    await append(journal, "a")
    await world.outage()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(journal.last_sequence(), TIMEOUT_S)
    await world.recovery()
    assert await known(journal.last_sequence) == 1
    await world.lose()
    with pytest.raises(JournalLost):
        await known(journal.last_sequence)


async def test_an_entry_appended_twice_is_one_entry(world: World) -> None:
    journal = await world.open()
    assert await append(journal, "a", b"x") == 1
    assert await append(journal, "b", b"y") == 2
    assert await append(journal, "a", b"x") == 1
    assert (await known(journal.describe)).last_sequence == 2


async def test_an_entry_appended_twice_through_two_handles_is_one_entry(world: World) -> None:
    one, other = await world.open(), await world.open()
    # A cluster may answer to the second one that the first is in process, which is an unknown outcome.
    sequences = await asyncio.gather(append(one, "a"), append(other, "a"))
    assert list(sequences) == [1, 1]


async def test_an_entry_of_the_largest_size_is_kept_and_a_larger_one_is_invalid(world: World) -> None:
    journal = await world.open()
    largest = bytes(journal.entry_bytes_max)
    assert await append(journal, "large", largest) == 1
    with pytest.raises(Invalid, match="over the"):
        await journal.append("larger", largest + b"x")
    reader = Reader(journal)
    await reader.until_sequence(1)
    assert reader.entries[0].data == largest
    await reader.stop()


async def test_a_tail_gives_everything_in_order_and_then_new_entries(world: World) -> None:
    writer, other = await world.open(), await world.open()
    await fill(writer, 1500)
    reader = Reader(other)
    await reader.until_sequence(1500)
    assert await append(writer, "new", b"new") == 1501
    await reader.until_sequence(1501)
    assert reader.sequences == list(range(1, 1502))
    assert {entry.data for entry in reader.entries} == {f"e{n}".encode() for n in range(1500)} | {b"new"}
    assert reader.largest_group <= 256
    await reader.stop()


async def test_a_tail_begins_after_the_sequence_it_is_given(world: World) -> None:
    journal = await world.open()
    await fill(journal, 20)
    reader, at_end = Reader(journal, after=15), Reader(journal, after=20)
    await reader.until_sequence(20)
    await append(journal, "new", b"new")
    await at_end.until_sequence(21)
    assert reader.sequences[:5] == [16, 17, 18, 19, 20]
    assert at_end.sequences == [21]
    await reader.stop()
    await at_end.stop()


async def test_a_tail_of_an_empty_journal_waits_for_the_first_entry(world: World) -> None:
    journal = await world.open()
    reader = Reader(journal)
    await append(journal, "a", b"x")
    await reader.until_sequence(1)
    assert reader.entries == [JournalEntry(1, b"x")]
    await reader.stop()


async def test_an_empty_entry_is_an_entry(world: World) -> None:
    journal = await world.open()
    await append(journal, "a", b"")
    reader = Reader(journal)
    await reader.until_sequence(1)
    assert reader.entries == [JournalEntry(1, b"")]
    await reader.stop()


async def test_two_tails_see_the_same(world: World) -> None:
    journal = await world.open()
    readers = [Reader(journal), Reader(await world.open())]
    await fill(journal, 300)
    for reader in readers:
        await reader.until_sequence(300)
        await reader.stop()
    assert readers[0].entries == readers[1].entries


async def test_a_purged_journal_keeps_its_sequences(world: World) -> None:
    journal = await world.open()
    await fill(journal, 10)
    # A repeated purge, and a purge of entries that are purged already, does no harm.
    for up_to, first in ((7, 8), (7, 8), (0, 8), (3, 8), (10, 11)):
        await known(partial(journal.purge, up_to))
        info = await known(journal.describe)
        assert (info.first_sequence, info.last_sequence) == (first, 10)
    assert await append(journal, "new", b"new") == 11


async def test_entries_that_do_not_exist_yet_are_not_purged(world: World) -> None:
    journal = await world.open()
    await fill(journal, 3)
    with pytest.raises(Invalid, match="cannot purge the journal up to entry 4: it ends at 3"):
        await known(partial(journal.purge, 4))
    info = await known(journal.describe)
    assert (info.first_sequence, info.last_sequence) == (1, 3)


async def test_a_purge_of_read_entries_does_not_disturb_a_tail(world: World) -> None:
    journal, other = await world.open(), await world.open()
    await fill(journal, 300)
    reader = Reader(other)
    await reader.until_sequence(300)
    await known(partial(journal.purge, 300))
    await fill(journal, 10, "more")
    await reader.until_sequence(310)
    assert reader.sequences == list(range(1, 311))
    await reader.stop()


async def test_a_journal_that_is_gone_is_not_purged(world: World) -> None:
    journal = await world.open()
    await fill(journal, 3)
    await world.lose()
    with pytest.raises(JournalLost):
        await known(partial(journal.purge, 2))


async def test_a_tail_from_before_the_purged_entries_is_a_gap(world: World) -> None:
    journal = await world.open()
    await fill(journal, 10)
    await known(partial(journal.purge, 7))
    with pytest.raises(JournalGap, match="journal entries 5 to 7 are gone"):
        await asyncio.wait_for(Reader(journal, after=4).task, TIMEOUT_S)
    reader = Reader(journal, after=7)
    await reader.until_sequence(10)
    assert reader.sequences == [8, 9, 10]
    await reader.stop()


@pytest.mark.parametrize("lost", [1, 5, 9])
async def test_a_missing_entry_is_a_gap_and_nothing_after_it_is_given(world: World, lost: int) -> None:
    journal = await world.open()
    await fill(journal, 10)
    await world.drop(lost)
    reader = Reader(journal)
    with pytest.raises(JournalGap):
        await asyncio.wait_for(reader.task, TIMEOUT_S)
    assert reader.sequences == list(range(1, lost))


async def test_a_tail_from_after_the_end_means_that_the_journal_lost_entries(world: World) -> None:
    journal = await world.open()
    await fill(journal, 3)
    with pytest.raises(JournalLost, match="ends at"):
        await asyncio.wait_for(Reader(journal, after=4).task, TIMEOUT_S)


async def test_a_journal_that_vanished_is_lost_for_every_call(world: World) -> None:
    journal = await world.open()
    await fill(journal, 3)
    reader = Reader(journal)
    await reader.until_sequence(3)
    await world.lose()
    with pytest.raises(JournalLost):
        await known(journal.describe)
    with pytest.raises(JournalLost):
        await known(lambda: journal.append("new", b"new"))
    with pytest.raises(JournalLost):
        await asyncio.wait_for(reader.task, TIMEOUT_S)


async def test_a_journal_that_was_created_again_is_lost_for_its_older_handles(world: World) -> None:
    journal = await world.open(doubts_loss=True)
    await fill(journal, 3)
    reader = Reader(journal)
    await reader.until_sequence(3)
    await world.make_again()
    with pytest.raises(JournalLost, match="created again"):
        await known(journal.describe)
    with pytest.raises(JournalLost, match="created again"):
        await asyncio.wait_for(reader.task, TIMEOUT_S)


async def test_an_append_without_an_acknowledgement_has_an_unknown_outcome_and_can_be_retried(world: World) -> None:
    journal = await world.open(doubts_loss=True)
    await append(journal, "a", b"x")
    await world.outage()
    with pytest.raises(Unavailable):
        await journal.append("b", b"y")
    with pytest.raises(Unavailable):
        await journal.describe()
    await world.recovery()
    assert await append(journal, "b") == 2


async def test_a_tail_outlives_an_outage_without_losing_or_repeating_anything(world: World) -> None:
    journal = await world.open(doubts_loss=True)
    reader = Reader(await world.open(doubts_loss=True))
    await fill(journal, 100, "before")
    await reader.until_sequence(50)
    await world.outage()
    await world.recovery()
    for number in range(10):
        await append(journal, f"after{number}")
    await reader.until_sequence(110)
    assert reader.sequences == list(range(1, 111))
    await reader.stop()
