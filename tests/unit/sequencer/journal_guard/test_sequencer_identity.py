"""The cluster's journal is made once, found again, and never replaced."""

import asyncio

import msgspec
import pytest

from penstock.contracts.errors import Corrupt, Unavailable
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.journal import Journal, JournalLost
from penstock_sequencer.journal_guard.identity import OwnJournal, open_own_journal
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.storage.journal_marker import JournalIdentity, marker_key
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore

CLUSTER = "test"


class Server:
    """Has one journal, or makes it on request."""

    def __init__(self) -> None:
        self.streams = MemoryJournalStore()
        self.streams.exists = False
        self.made = 0

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        assert (cluster, replicas) == (CLUSTER, 3)
        await asyncio.sleep(0)
        if not self.streams.exists:
            if not create:
                raise JournalLost("there is no journal: nats has no stream")
            self.streams.exists = True
            self.made += 1
        journal = MemoryJournal(self.streams)
        await journal.describe()
        return journal


class Rig:
    """A server, a store, and the start of sequencers on them."""

    def __init__(self, store: ObjectStore) -> None:
        self.server = Server()
        self.store = store

    async def open(self) -> OwnJournal:
        return await open_own_journal(self.server, self.store, CLUSTER, 3)

    async def marker(self) -> JournalIdentity:
        return msgspec.json.decode(await self.store.get(marker_key(CLUSTER)), type=JournalIdentity)


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(await open_store(f"memory://{request.node.name}"))


async def test_a_new_cluster_gets_a_journal_and_a_marker_that_names_it(rig: Rig) -> None:
    await rig.open()
    assert rig.server.made == 1
    assert await rig.marker() == JournalIdentity(f"penstock-journal-{CLUSTER}", rig.server.streams.created)


async def test_a_restart_finds_the_same_journal(rig: Rig) -> None:
    assert (await rig.open()).is_new
    assert not (await rig.open()).is_new
    assert rig.server.made == 1


async def test_two_that_start_at_once_both_get_the_journal(rig: Rig) -> None:
    await asyncio.gather(*(rig.open() for _ in range(5)))
    assert rig.server.made == 1


async def test_a_start_that_died_before_the_marker_is_completed_by_the_next(rig: Rig) -> None:
    rig.server.streams.exists = True
    await rig.open()
    assert rig.server.made == 0
    assert (await rig.marker()).created == rig.server.streams.created


async def test_a_lost_journal_is_not_replaced(rig: Rig) -> None:
    await rig.open()
    rig.server.streams.exists = False
    with pytest.raises(Halted, match=r"made at 2026-01-01T00:00:00Z does not exist: .* Restore the journal's stream"):
        await rig.open()
    assert not rig.server.streams.exists


async def test_a_journal_with_entries_is_not_adopted_by_an_empty_store(rig: Rig) -> None:
    own = await rig.open()
    await own.journal.append("an entry", b"entry")
    rig.store = await open_store("memory://emptied")
    with pytest.raises(Halted, match=r"no test/journal-identity, but the journal .* has 1 entries. The store was lost"):
        await rig.open()


async def test_another_journal_of_the_same_name_is_rejected(rig: Rig) -> None:
    await rig.open()
    rig.server.streams.make_again("2026-02-02T00:00:00Z")
    with pytest.raises(Halted, match="the stream there was made at 2026-02-02T00:00:00Z"):
        await rig.open()


async def test_a_marker_that_cannot_be_read_stops_the_start(rig: Rig) -> None:
    await rig.store.put(marker_key(CLUSTER), [b"{}"])
    with pytest.raises(Corrupt, match="test/journal-identity does not name a journal"):
        await rig.open()
    assert rig.server.made == 0


class LossyStore:
    """Puts with an unknown outcome; `takes` is whether they have an effect."""

    def __init__(self, store: ObjectStore, takes: bool) -> None:
        self._store = store
        self._takes = takes

    async def get(self, key: str) -> bytes:
        return await self._store.get(key)

    async def put(self, key: str, body: list[bytes]) -> str:
        if self._takes:
            await self._store.put(key, body)
        raise Unavailable("no answer from the store")


async def test_a_marker_written_without_an_answer_counts(rig: Rig) -> None:
    rig.store = LossyStore(rig.store, takes=True)  # type: ignore[assignment]
    await rig.open()
    assert (await rig.marker()).created == rig.server.streams.created


async def test_without_a_marker_no_sequencer_starts(rig: Rig) -> None:
    rig.store = LossyStore(rig.store, takes=False)  # type: ignore[assignment]
    with pytest.raises(Unavailable, match="does not take the object test/journal-identity"):
        await rig.open()
