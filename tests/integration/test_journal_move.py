"""The journal moves between real NATS deployments: one server, three servers, and back."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from penstock.contracts.entries import JournalMoved, decode_entry, is_move_mark
from penstock.contracts.errors import Invalid
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import ObjectStore, open_store
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.journal import Journal, JournalInfo
from penstock.runtime.nats.client import NatsConnection
from penstock.runtime.nats.server import server_config
from penstock_sequencer.journal_move.copies import change_copies
from penstock_sequencer.journal_move.copying import CopyLimits
from penstock_sequencer.journal_move.landing import LandingCopy
from penstock_sequencer.journal_move.move import Move, Place
from penstock_sequencer.storage.journal_marker import JournalIdentity, read_identity, write_marker
from penstock_sequencer.storage.journal_stream import MADE_BY_MOVE, FoundStream, NatsStreams
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer, running_nats_server
from tests.testkit.servers.nats_cluster import NatsCluster, running_nats_cluster
from tests.testkit.servers.ports import free_port
from tests.testkit.waiting import TIMEOUT_S, known

QUICK = CopyLimits(retry_s=0.05)
names = (f"c{number}" for number in itertools.count())


class Killed(BaseException):
    """The process of a move was killed."""


class World:
    """A virtual cluster of its own: a store, a journal with some entries, and the moves of it."""

    def __init__(self, source: NatsConnection) -> None:
        self.cluster = next(names)
        self.store = MemoryStore()
        self.source = source
        self.acknowledged: list[bytes] = []
        self.lines: list[str] = []

    async def begin(self, count: int) -> Journal:
        journal = await self.source.journal(self.cluster, create=True)
        created = (await known(journal.describe)).created
        await write_marker(self.store, self.cluster, JournalIdentity(journal_stream(self.cluster), created))
        await self.append(journal, count)
        return journal

    async def append(self, journal: Journal, count: int) -> None:
        for _ in range(count):
            data = b"entry %d" % len(self.acknowledged)
            await known(lambda data=data: journal.append(data.decode(), data))  # type: ignore[misc]
            self.acknowledged.append(data)

    def place(self, connection: NatsConnection, name: str = "the servers") -> Place:
        return Place(name, NatsStreams(connection, self.cluster, 1, made_by=MADE_BY_MOVE))

    async def move(
        self,
        target: NatsConnection,
        *,
        replicas: int = 1,
        source: NatsConnection | None = None,
        killed_before: int | None = None,
        on_line: Callable[[str], None] | None = None,
        is_dry_run: bool = False,
        removes_old: bool = False,
        landing: LandingCopy | None = None,
    ) -> bool:
        """Move the journal; `killed_before` is the number of the line at which the process dies."""
        self.lines = []

        def report(line: str) -> None:
            self.lines.append(line)
            if on_line is not None:
                on_line(line)
            if killed_before is not None and len(self.lines) > killed_before:
                raise Killed

        move = Move(
            store=self.store,
            cluster=self.cluster,
            source=self.place(source or self.source),
            target=self.place(target),
            replicas=replicas,
            landing=landing,
            report=report,
            limits=QUICK,
        )
        return await move.run(is_dry_run=is_dry_run, removes_old=removes_old)

    async def check(self, connection: NatsConnection, first: int = 1) -> Journal:
        """The marker names the journal there, and it has all acknowledged entries at their sequences."""
        journal = await connection.journal(self.cluster, create=False)
        info = await known(journal.describe)
        identity = await read_identity(self.store, self.cluster)
        assert identity is not None
        assert identity.created == info.created
        assert await entries(journal, info) == dict(enumerate(self.acknowledged, 1)) if first == 1 else True
        assert (info.first_sequence, info.last_sequence) == (first, len(self.acknowledged))
        return journal


async def entries(journal: Journal, info: JournalInfo) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    if info.last_sequence < info.first_sequence:
        return found
    async for group in journal.tail(info.first_sequence - 1):
        found |= {each.sequence: each.data for each in group}
        if group[-1].sequence >= info.last_sequence:
            return found
    raise AssertionError


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_nats_server(tmp_path_factory.mktemp("single")) as server:
        yield server


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_nats_server(tmp_path_factory.mktemp("other")) as server:
        yield server


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with running_nats_cluster(tmp_path_factory.mktemp("three")) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def connected(server: NatsServer | NatsCluster) -> AsyncIterator[NatsConnection]:
    connection = await connect_nats(server.url, name="test")
    yield connection
    await connection.close()


@pytest.fixture
async def at_single(single: NatsServer) -> AsyncIterator[NatsConnection]:
    async with connected(single) as connection:
        yield connection


@pytest.fixture
async def at_other(other: NatsServer) -> AsyncIterator[NatsConnection]:
    async with connected(other) as connection:
        yield connection


@pytest.fixture
async def at_three(three: NatsCluster) -> AsyncIterator[NatsConnection]:
    async with connected(three) as connection:
        yield connection


@pytest.fixture
def world(at_single: NatsConnection) -> World:
    return World(at_single)


async def test_a_journal_moves_from_one_server_to_three_and_back(
    world: World, at_single: NatsConnection, at_three: NatsConnection
) -> None:
    await world.begin(700)
    assert await world.move(at_three, replicas=3)
    there = await world.check(at_three)
    assert (await known(there.describe)).replicas == 3
    await world.append(there, 50)

    with pytest.raises(Invalid, match="moved away from the servers before, and its old stream is still there"):
        await world.move(at_single, source=at_three)
    assert await world.move(at_single, source=at_three, removes_old=True)
    back = await world.check(at_single)
    await world.append(back, 10)
    assert len(await entries(back, await known(back.describe))) == 760


async def test_a_second_run_says_that_the_journal_is_there_and_changes_nothing(
    world: World, at_other: NatsConnection
) -> None:
    await world.begin(3)
    assert await world.move(at_other)
    await world.append(await world.check(at_other), 3)
    assert not await world.move(at_other)
    assert "is at the servers already" in world.lines[0]
    await world.check(at_other)


async def test_a_move_that_is_killed_before_any_step_continues_in_the_next_run(
    world: World, at_other: NatsConnection
) -> None:
    for killed_before in itertools.count():
        world = World(world.source)
        journal = await world.begin(20)
        try:
            await world.move(at_other, killed_before=killed_before)
            break
        except Killed:
            pass
        at_target = await known(world.place(at_other).streams.find)
        named = await read_identity(world.store, world.cluster)
        assert named is not None
        is_ended = any(is_move_mark(data) for data in (await entries(journal, await known(journal.describe))).values())
        if at_target is not None and named.created == at_target.created:
            assert is_ended
        if not is_ended:  # then sequencers go on at the old servers, and acknowledge more
            await world.append(journal, 5)
        await world.move(at_other)
        await world.append(await world.check(at_other), 5)
        await world.check(at_other)
    assert killed_before >= 5
    await world.check(at_other)


async def test_entries_after_the_mark_are_not_moved_and_replicas_stop_at_the_mark(
    world: World, at_other: NatsConnection
) -> None:
    journal = await world.begin(5)
    with pytest.raises(Killed):
        await world.move(at_other, on_line=raise_at("naming the new journal"))
    await known(lambda: journal.append("late", b"of a sequencer that was paused"))
    await world.move(at_other)
    await world.check(at_other)
    mark = (await entries(journal, await known(journal.describe)))[6]
    with pytest.raises(JournalMoved, match="the journal was moved to the servers, where its stream was made at"):
        decode_entry(mark)


def raise_at(text: str) -> Callable[[str], None]:
    def on_line(line: str) -> None:
        if text in line:
            raise Killed

    return on_line


async def test_if_the_new_servers_are_lost_before_they_are_named_the_journal_moves_to_others(
    world: World, at_other: NatsConnection, at_three: NatsConnection
) -> None:
    await world.begin(5)
    with pytest.raises(Killed):
        await world.move(at_other, on_line=raise_at("naming the new journal"))
    await world.move(at_three, replicas=3)
    await world.check(at_three)


async def test_two_moves_at_once_name_one_journal_with_all_entries(
    world: World, at_other: NatsConnection, at_three: NatsConnection
) -> None:
    await world.begin(300)
    second = World(world.source)
    second.cluster, second.store, second.acknowledged = world.cluster, world.store, world.acknowledged
    results = await asyncio.gather(world.move(at_other), second.move(at_other), return_exceptions=True)
    assert True in results
    await world.check(at_other)


async def test_entries_that_were_purged_between_two_runs_are_left_out(world: World, at_other: NatsConnection) -> None:
    journal = await world.begin(20)
    with pytest.raises(Killed):
        await world.move(at_other, on_line=raise_at("ending the old journal"))
    await world.append(journal, 20)
    await known(lambda: journal.purge(30))
    await world.move(at_other)
    moved = await world.check(at_other, first=31)
    assert await entries(moved, await known(moved.describe)) == dict(enumerate(world.acknowledged[30:], 31))
    await world.append(moved, 1)


async def test_an_empty_journal_moves(world: World, at_other: NatsConnection) -> None:
    await world.begin(0)
    await world.move(at_other)
    await world.append(await world.check(at_other), 2)
    await world.check(at_other)


async def test_a_dry_run_changes_nothing(world: World, at_other: NatsConnection) -> None:
    journal = await world.begin(4)
    assert await world.move(at_other, is_dry_run=True)
    assert "4 entries, 1 to 4, move from" in world.lines[0]
    assert await known(world.place(at_other).streams.find) is None
    assert (await known(journal.describe)).last_sequence == 4


async def test_another_journal_at_the_new_servers_is_never_touched(world: World, at_other: NatsConnection) -> None:
    journal = await world.begin(4)
    theirs = await at_other.journal(world.cluster, create=True)
    await known(lambda: theirs.append("1", b"another"))
    with pytest.raises(Invalid, match=r"is a journal of cluster .* already, made at"):
        await world.move(at_other, removes_old=True)
    assert (await known(theirs.describe)).last_sequence == 1
    assert (await known(journal.describe)).last_sequence == 4


async def test_a_stream_of_a_move_that_is_of_another_journal_is_not_continued(
    world: World, at_other: NatsConnection
) -> None:
    await world.begin(4)
    streams = world.place(at_other).streams
    await streams.make(1, 1)
    await streams.append_at(1, b"another")
    with pytest.raises(Invalid, match=r"ends with entry 1, which is not of this journal. Nothing was changed"):
        await world.move(at_other)


async def test_only_the_journal_that_the_store_names_is_moved(world: World, at_other: NatsConnection) -> None:
    with pytest.raises(Invalid, match="so there is no journal to move"):
        await world.move(at_other)
    await write_marker(world.store, world.cluster, JournalIdentity(journal_stream(world.cluster), "some time"))
    with pytest.raises(Invalid, match=r"is no journal, but the object .* names the journal made at some time"):
        await world.move(at_other)
    await world.source.journal(world.cluster, create=True)
    with pytest.raises(Invalid, match=r"is a stream made at .*, but the object"):
        await world.move(at_other)


async def test_three_copies_need_three_servers(world: World, at_other: NatsConnection) -> None:
    journal = await world.begin(4)
    with pytest.raises(Invalid, match=r"cannot make the stream .*: replicas > 1 not supported in non-clustered mode"):
        await world.move(at_other, replicas=3)
    assert (await known(journal.describe)).last_sequence == 4


async def test_servers_without_room_stop_the_move_before_the_old_journal_ends(world: World, tmp_path: Path) -> None:
    journal = await world.begin(10)
    large = bytes(300_000)
    for number in range(5):
        await known(lambda number=number: journal.append(f"large {number}", large))  # type: ignore[misc]
    server = NatsServer(tmp_path)
    text = server_config(store_dir=tmp_path / "jetstream", host="127.0.0.1", port=server.port)
    server.config_path.write_text(text.replace(str(2**60), str(1024 * 1024)))
    server.start()
    try:
        async with connected(server) as small:
            with pytest.raises(Invalid, match="the nats servers have no room for the journal"):
                await world.move(small)
    finally:
        server.kill()
    assert (await known(journal.describe)).last_sequence == 15
    assert await known(lambda: journal.append("next", b"it goes on")) == 16


async def test_objects_of_the_landing_store_move_also_those_written_meanwhile(
    world: World, single: NatsServer, other: NatsServer, at_other: NatsConnection
) -> None:
    def landing_url(server: NatsServer) -> str:
        return f"jetstream://{server.url.removeprefix('nats://')}/{world.cluster}"

    await world.begin(3)
    old, new = await open_store(landing_url(single)), await open_store(landing_url(other))
    contents = {f"{world.cluster}/a.b/{number}": b"x" * number for number in range(40)}
    for key, data in contents.items():
        await old.put(key, [data])
    late: list[str] = []

    class WrittenMeanwhile:
        """Puts an object between the two copies."""

        def __init__(self, copy: LandingCopy) -> None:
            self.count, self._copy = copy.count, copy

        async def copy(self) -> None:
            await self._copy.copy()
            if not late:
                late.append("late")
                await old.put(f"{world.cluster}/late", [b"late"])

    await world.move(at_other, landing=WrittenMeanwhile(LandingCopy(old, new, report=world.lines.append)))  # type: ignore[arg-type]
    contents[f"{world.cluster}/late"] = b"late"
    assert await everything(new) == contents
    await old.close()
    await new.close()


async def everything(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: await store.get(info.key) for info in await store.list("")}


async def test_copies_are_raised_and_lowered_while_the_journal_takes_entries(
    world: World, at_three: NatsConnection
) -> None:
    world.source = at_three
    journal = await world.begin(20)
    for copies in (3, 1, 3):
        await change_copies(at_three, world.cluster, copies, is_dry_run=False, report=world.lines.append)
        await world.append(journal, 5)
        assert (await known(journal.describe)).replicas == copies
    await world.check(at_three)
    with pytest.raises(Invalid, match=r"the nats servers reject the change: .*Nothing was changed"):
        await change_copies(at_three, world.cluster, 5, is_dry_run=False, report=world.lines.append)
    with pytest.raises(Invalid, match="have no stream penstock-journal-absent"):
        await change_copies(at_three, "absent", 3, is_dry_run=False, report=world.lines.append)


def test_servers_that_do_not_answer_are_named_and_nothing_is_made(tmp_path: Path, other: NatsServer) -> None:
    silent = f"nats://127.0.0.1:{free_port()}"
    flags = ["--nats-url", silent, "--to", other.url, "--store", f"file://{tmp_path}/objects", "--yes"]
    command = [sys.executable, "-m", "penstock.cli", "journal", "move", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 1
    assert f"penstock: no nats server at {silent}" in done.stderr
    assert done.stdout == ""


async def test_a_journal_that_another_move_made_meanwhile_is_not_removed(
    world: World, at_single: NatsConnection, at_other: NatsConnection
) -> None:
    await world.begin(5)
    await world.move(at_other)
    second = World(world.source)
    second.cluster, second.store, second.acknowledged = world.cluster, world.store, world.acknowledged
    paused, goes_on = asyncio.Event(), asyncio.Event()

    class PausedStreams(NatsStreams):
        """Stops before the removal until the other move is complete."""

        async def find(self) -> FoundStream | None:
            found = await super().find()
            if paused.is_set():
                await goes_on.wait()
                return await super().find()
            paused.set()
            return found

    def paused_place(connection: NatsConnection, name: str = "the servers") -> Place:
        if connection is not at_single:
            return world.place(connection, name)
        return Place(name, PausedStreams(connection, world.cluster, 1, made_by=MADE_BY_MOVE))

    second.place = paused_place  # type: ignore[method-assign]
    late = asyncio.create_task(second.move(at_single, source=at_other, removes_old=True))
    await paused.wait()
    await world.move(at_single, source=at_other, removes_old=True)
    goes_on.set()
    with pytest.raises(Invalid, match="another move made a stream at the servers meanwhile"):
        await late
    await world.check(at_single)
