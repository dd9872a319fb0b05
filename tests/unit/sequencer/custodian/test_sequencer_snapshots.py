"""Snapshots of replicas: taken by one, known to all, used for purges and starts; and the faults that break them."""

import asyncio
import functools
import io
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import crc32c
import pytest

from penstock.contracts.codec import Buffer
from penstock.contracts.commands import DeleteTopic, Tick
from penstock.contracts.entries import Entry, encode_entry
from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.objectstore import AlreadyExists, Throttled
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.journal import JournalEntry, JournalInfo
from penstock.segment.keys import snapshot_key, snapshots_prefix
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.custodian.fork_capture import Write
from penstock_sequencer.custodian.snapshot_schedule import SnapshotSettings
from penstock_sequencer.replication.halt import Halted
from penstock_sequencer.replication.replica import LeftBehind
from penstock_sequencer.storage.snapshot_format import FORMAT_VERSION, encode_snapshot, read_snapshot
from penstock_sequencer.storage.snapshot_store import check_stored_snapshot, list_snapshots, put_snapshot
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import CLUSTER, Running
from tests.unit.sequencer.sequencer_stored_rig import ARCHIVE, OFTEN, StoredRig, stored_rig


@in_virtual_time
async def test_one_replica_takes_a_snapshot_and_all_know_it() -> None:
    async with stored_rig("a", "b", "c") as three:
        (first,) = await three.until_snapshots(1)
        await asyncio.sleep(1)
        assert await list_snapshots(three.objects, CLUSTER) == [first]
        for running in three.rig.running.values():
            assert running.sequencer.replica.state.custody.snapshots == [first]
            assert running.metric("snapshot_sequence") == first
            assert 0 <= running.metric("snapshot_age_seconds") < 5
        custodians = [each for each in three.rig.running.values() if each.metric("custodian")]
        assert [each.metric("snapshot_seconds_count") for each in custodians] == [1]
        assert custodians[0].metric("snapshot_bytes") == len(await three.objects.get(snapshot_key("", CLUSTER, first)))


@in_virtual_time
async def test_the_journal_is_purged_up_to_the_older_snapshot_and_no_further() -> None:
    async with stored_rig("a") as one:
        await one.until_snapshots(1)
        await asyncio.sleep(10)
        assert one.journal.first_sequence == 1
        older, newer = await one.until_snapshots(1)
        await one.until_trimmed()
        assert one.journal.entry(older) is None
        assert one.journal.entry(older + 1) is not None
        assert await list_snapshots(one.objects, CLUSTER) == [older, newer]


@in_virtual_time
async def test_only_archived_entries_are_purged() -> None:
    class Unarchived(MemoryStore):
        async def put(self, key: str, body: Sequence[Any], *, if_match: str | None = None) -> str:
            if key.startswith(ARCHIVE):
                raise Unavailable("the store takes no archive")
            return await super().put(key, body, if_match=if_match)

    async with stored_rig("a", objects=Unarchived()) as one:
        await one.until_snapshots(4)
        await asyncio.sleep(120)
        assert one.journal.first_sequence == 1


@in_virtual_time
async def test_data_that_a_snapshot_replaces_is_deleted_so_the_store_does_not_grow() -> None:
    async with stored_rig("a") as one:
        for _ in range(6):
            await one.until_snapshots(2)
            await one.until_trimmed()
            await asyncio.sleep(10)
            assert len(await one.keys(snapshots_prefix("", CLUSTER))) == 2
            spans = [key.removeprefix(ARCHIVE).split("-") for key in await one.keys(ARCHIVE)]
            assert all(int(last) >= one.custody.snapshots[0] for _, last in spans)
            # The archive continues where the older snapshot ends, without a gap.
            assert min(int(first) for first, _ in spans) <= one.custody.snapshots[0] + 1


@in_virtual_time
async def test_with_few_entries_a_snapshot_comes_after_the_interval_if_there_is_work() -> None:
    async with stored_rig() as one:
        one.rig.snapshots = SnapshotSettings(entries=1_000_000, interval_ms=60_000)
        await one.rig.start("a")
        await one.work(1)
        await asyncio.sleep(50)
        assert one.custody.snapshots == []
        await asyncio.sleep(20)
        (first,) = one.custody.snapshots
        await asyncio.sleep(3_600)
        assert one.custody.snapshots == [first]  # only housekeeping came after it
        await one.work(1)
        await asyncio.sleep(5)
        assert len(one.custody.snapshots) == 2


@in_virtual_time
async def test_after_segments_died_snapshots_come_until_both_know_it() -> None:
    async with stored_rig() as one:
        one.rig.snapshots = SnapshotSettings(entries=1_000_000, interval_ms=60_000)
        await one.rig.start("a")
        await one.work(1)
        await asyncio.sleep(70)
        (first,) = one.custody.snapshots
        await one.rig.client.command([DeleteTopic(0, "t", bytes(16))], deadline_s=5)
        died = one.rig.client.seen_sequence
        await asyncio.sleep(3_600)
        older, newer = one.custody.snapshots
        assert first < died <= older
        await asyncio.sleep(3_600)
        assert one.custody.snapshots == [older, newer]


@in_virtual_time
async def test_an_idle_cluster_takes_a_snapshot_after_enough_ticks() -> None:
    async with stored_rig("a") as one:
        await asyncio.sleep(100)
        assert len(one.custody.snapshots) == 2
        await one.until_trimmed()


@in_virtual_time
async def test_a_start_loads_the_newest_snapshot_and_applies_the_entries_after_it() -> None:
    async with stored_rig("a") as one:
        _, newer = await one.until_snapshots(3)
        await one.until_trimmed()
        await one.work(5)
        await one.rig.kill("a")
        again = await one.rig.start("b")
        assert again.applied >= newer + 5
        assert again.metric("entries_total") == again.applied - newer
        one.check(again)
        await one.until_snapshots(3)
        one.check(again)


@in_virtual_time
async def test_replicas_started_from_different_snapshots_have_equal_bytes_and_check_each_other() -> None:
    async with stored_rig("a") as two:
        await two.until_snapshots(1)
        await two.rig.start("b")
        await two.until_snapshots(2)
        await two.until_trimmed()
        await two.rig.kill("a")
        await two.rig.start("c")
        await two.until_snapshots(2)
        last = two.journal.last_sequence
        for running in two.rig.running.values():
            await running.sequencer.replica.until_applied(last, 5)
        states = {encode_state(running.sequencer.replica.state) for running in two.rig.running.values()}
        assert len(states) == 1
        two.check(next(iter(two.rig.running.values())))


@in_virtual_time
async def test_a_damaged_newest_snapshot_falls_back_to_the_one_before() -> None:
    async with stored_rig("a") as one:
        older, newer = await one.until_snapshots(3)
        await one.until_trimmed()
        await one.rig.kill("a")
        await one.damage(newer)
        again = await one.rig.start("b")
        assert again.metric("entries_total") == again.applied - older
        one.check(again)


@in_virtual_time
async def test_without_a_good_snapshot_a_complete_journal_is_replayed() -> None:
    async with stored_rig("a") as one:
        (only,) = await one.until_snapshots(1)
        await one.rig.kill("a")
        await one.damage(only)
        one.check(await one.rig.start("b"))


@in_virtual_time
async def test_a_snapshot_damaged_later_allows_no_purge_and_is_replaced() -> None:
    async with stored_rig("a") as one:
        (first,) = await one.until_snapshots(1)
        await one.damage(first)
        _, second = await one.until_snapshots(1)
        starts = set()

        def is_replaced() -> bool:
            starts.add(one.journal.first_sequence)
            return len(one.custody.snapshots) == 2 and first not in one.custody.snapshots

        await until(is_replaced, 120)
        assert one.custody.snapshots[0] == second
        assert starts <= {1, second + 1}, "purged up to the damaged snapshot"
        await one.until_trimmed()
        for sequence in one.custody.snapshots:
            assert await check_stored_snapshot(one.objects, CLUSTER, sequence)


class Damaging(MemoryStore):
    """Damages a number of stored objects."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def put(self, key: str, body: Sequence[Any], *, if_match: str | None = None) -> str:
        if self.times and key.startswith(snapshots_prefix("", CLUSTER)):
            self.times -= 1
            body = [b"".join(body)[:-1] + b"\x00\x00"]
        return await super().put(key, body, if_match=if_match)


@in_virtual_time
async def test_a_snapshot_that_reads_back_damaged_does_not_count_and_is_deleted() -> None:
    objects = Damaging(times=3)
    async with stored_rig("a", objects=objects) as one:
        await one.until_snapshots(2)
        assert objects.times == 0
        assert await list_snapshots(objects, CLUSTER) == one.custody.snapshots
        assert one.rig.running["a"].metric("snapshot_failures_total") == 3
        await one.until_trimmed()


class OtherFile(io.BytesIO):
    """A file that reads back as a snapshot of another state than the written one."""

    def read(self, size: int | None = -1, /) -> bytes:
        snapshot = read_snapshot(super().read(size))
        snapshot.state.next_producer_id += 1
        return encode_snapshot(snapshot)


class Capturing:
    """Captures inline, into such a file while ordered to."""

    is_other = True

    async def __call__(self, write: Write) -> Buffer:
        out = OtherFile() if self.is_other else io.BytesIO()
        write(out)
        return out.getvalue()


@in_virtual_time
async def test_a_snapshot_that_would_read_back_as_another_state_is_not_stored() -> None:
    capture = Capturing()
    async with stored_rig() as one:
        one.rig.capture = capture
        await one.rig.start("a")
        await one.work(OFTEN.entries)
        await until(lambda: one.rig.running["a"].metric("snapshot_failures_total") >= 2, 120)
        assert await list_snapshots(one.objects, CLUSTER) == []
        assert one.journal.first_sequence == 1
        capture.is_other = False
        await one.until_snapshots(2)
        await one.until_trimmed()


class Denying(MemoryStore):
    """Denies reading snapshots while ordered to."""

    is_denying = False
    denied = 0

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        if self.is_denying and key.startswith(snapshots_prefix("", CLUSTER)):
            self.denied += 1
            raise Invalid("s3 answered AccessDenied")
        return await super().get_range(key, position, length)


@in_virtual_time
async def test_denied_reads_are_no_proof_of_damage_and_nothing_is_deleted() -> None:
    objects = Denying()
    async with stored_rig("a", objects=objects) as one:
        (first,) = await one.until_snapshots(1)
        objects.is_denying = True
        await one.work(OFTEN.entries)
        await until(lambda: objects.denied >= 3, 120)
        taken = await list_snapshots(objects, CLUSTER)
        assert taken[0] == first
        assert len(taken) > 1, "a snapshot that cannot be read back stays"
        assert one.custody.snapshots == [first]
        objects.is_denying = False
        await until(lambda: len(one.custody.snapshots) == 2, 60)
        assert one.custody.snapshots[0] == first
        await one.until_trimmed()


@in_virtual_time
async def test_a_truncated_snapshot_is_damaged() -> None:
    async with stored_rig("a") as one:
        (first,) = await one.until_snapshots(1)
        key = snapshot_key("", CLUSTER, first)
        data = await one.objects.get(key)
        for kept_bytes in (len(data) - 1, 100, 7):
            await one.objects.delete([key])
            await one.objects.put(key, [data[:kept_bytes]])
            with pytest.raises(Corrupt, match=f"it ends after {kept_bytes} bytes"):
                await check_stored_snapshot(one.objects, CLUSTER, first)


class Doubtful(MemoryStore):
    """Stores the first snapshot and then raises an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    async def put(self, key: str, body: Sequence[Any], *, if_match: str | None = None) -> str:
        etag = await super().put(key, body, if_match=if_match)
        if self.error is not None and key.startswith(snapshots_prefix("", CLUSTER)):
            error, self.error = self.error, None
            raise error
        return etag


@in_virtual_time
async def test_a_snapshot_that_exists_already_is_verified_and_recorded() -> None:
    async with stored_rig("a", objects=Doubtful(AlreadyExists("stored by an earlier custodian"))) as one:
        (first,) = await one.until_snapshots(1)
        assert await list_snapshots(one.objects, CLUSTER) == [first]
        assert one.rig.running["a"].metric("snapshot_failures_total") == 0


class Measuring(MemoryStore):
    """Measures the largest put, and the number of puts at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.fragment_bytes_max = self.in_work = self.in_work_max = 0

    async def put(self, key: str, body: Sequence[Any], *, if_match: str | None = None) -> str:
        self.fragment_bytes_max = max(
            self.fragment_bytes_max, *map(len, body)
        )  # parts of a multipart put arrive here too, side by side
        return await super().put(key, body, if_match=if_match)

    async def begin_parts(self, key: str, part_bytes: int) -> Any:
        parts = await super().begin_parts(key, part_bytes)
        put_part = parts.put_part

        async def measured(number: int, body: Sequence[Any]) -> None:
            self.fragment_bytes_max = max(self.fragment_bytes_max, sum(map(len, body)))
            self.in_work += 1
            self.in_work_max = max(self.in_work_max, self.in_work)
            await asyncio.sleep(0.01)
            await put_part(number, body)
            self.in_work -= 1

        parts.put_part = measured  # type: ignore[method-assign]
        return parts


@in_virtual_time
async def test_a_large_snapshot_is_put_in_small_parts_one_by_one() -> None:
    """A client hashes one put without a pause for the event loop, so other tasks wait."""
    store = Measuring()
    with pytest.raises(Corrupt):  # random bytes are no snapshot, which is found when they are read back
        await put_snapshot(store, CLUSTER, 1, random.Random(1).randbytes(12 * 1024 * 1024))
    assert 0 < store.fragment_bytes_max <= 5 * 1024 * 1024
    assert store.in_work_max == 1
    assert not await list_snapshots(store, CLUSTER)


@in_virtual_time
async def test_a_snapshot_in_doubt_does_not_count_and_is_deleted_with_the_older_ones() -> None:
    async with stored_rig("a", objects=Doubtful(Throttled("slow down"))) as one:
        (first,) = await one.until_snapshots(1)
        in_doubt, recorded = await list_snapshots(one.objects, CLUSTER)
        assert in_doubt < recorded == first
        await one.until_snapshots(1)
        await one.until_trimmed()
        assert await list_snapshots(one.objects, CLUSTER) == one.custody.snapshots


@in_virtual_time
async def test_a_start_waits_for_a_store_that_does_not_answer() -> None:
    class Silent(MemoryStore):
        is_silent = False

        async def list(self, prefix: str, after: str = "", limit: int = 1_000) -> Any:
            if self.is_silent:
                raise Unavailable("the store does not answer")
            return await super().list(prefix, after, limit)

    objects = Silent()
    async with stored_rig("a", objects=objects) as one:
        await one.until_snapshots(2)
        await one.rig.kill("a")
        objects.is_silent = True
        starting = asyncio.create_task(one.rig.start("b"))
        await asyncio.sleep(300)
        assert not starting.done()
        objects.is_silent = False
        one.check(await starting)


@in_virtual_time
async def test_a_replica_that_was_away_during_a_purge_reports_that_and_can_start_again() -> None:
    async with stored_rig("a") as two:
        await two.until_snapshots(1)
        gate = asyncio.Event()
        two.rig.make_journal = functools.partial(Held, gate=gate)
        away = Running("b", two.rig)
        two.rig.make_journal = MemoryJournal
        await two.until_snapshots(3)
        await two.until_trimmed()
        gate.set()
        with pytest.raises(BaseExceptionGroup) as caught:
            await away.task
        text = r"left behind after journal entry \d+: .* are gone, .* It starts again from the newest snapshot"
        assert caught.group_contains(LeftBehind, match=text)
        assert not caught.group_contains(Halted)
        assert away.metric("halted") == 0
        two.check(await two.rig.start("c"))


@in_virtual_time
async def test_a_missing_entry_halts_when_it_was_not_purged() -> None:
    async with stored_rig("a") as two:
        await two.until_snapshots(1)
        gate = asyncio.Event()
        two.rig.make_journal = functools.partial(Held, gate=gate)
        away = Running("b", two.rig)
        two.rig.make_journal = MemoryJournal
        await until(lambda: away.applied > 0)
        await two.work(2)
        two.journal.drop(away.applied + 1)
        gate.set()
        with pytest.raises(BaseExceptionGroup) as caught:
            await away.task
        assert caught.group_contains(Halted, match=r"journal entry \d+ is gone")
        assert away.metric("halted") == 1


class Held(MemoryJournal):
    """Brings nothing after its first entries while the gate is closed."""

    def __init__(self, store: MemoryJournalStore, gate: asyncio.Event) -> None:
        super().__init__(store)
        self._gate = gate

    async def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        async for group in super().tail(after):
            yield group
            await self._gate.wait()


async def expect_halt(one: StoredRig, text: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await one.rig.start(f"replica-{one.rig.entropy.take(2).hex()}")
    assert caught.group_contains(Halted, match=text), caught.value.exceptions


@in_virtual_time
async def test_a_journal_that_ends_before_its_snapshot_halts() -> None:
    async with stored_rig("a") as one:
        _, newer = await one.until_snapshots(2)
        await one.rig.kill("a")
        for sequence in range(newer, one.journal.last_sequence + 1):
            one.journal.drop(sequence)
        one.journal.last_sequence = newer - 1
        await expect_halt(
            one,
            f"halted at the snapshot of journal entry {newer}: the journal ends with entry {newer - 1}. "
            f"Nothing was changed or deleted. Restore the journal's stream",
        )


class BehindServer(MemoryJournal):
    """One of three servers, which does not know the journal's end for a while."""

    def __init__(self, store: MemoryJournalStore, ends_at: int, until_s: float) -> None:
        super().__init__(store)
        self._ends_at = ends_at
        self._until_s = until_s

    async def describe(self) -> JournalInfo:
        info = await super().describe()
        is_late = asyncio.get_running_loop().time() >= self._until_s
        return JournalInfo(1, info.last_sequence if is_late else self._ends_at, info.created, replicas=3)


@in_virtual_time
async def test_a_server_that_is_behind_the_snapshot_gets_time_but_not_for_ever() -> None:
    async with stored_rig("a") as one:
        (first,) = await one.until_snapshots(1)
        await one.rig.kill("a")
        now_s = asyncio.get_running_loop().time()
        one.rig.make_journal = functools.partial(BehindServer, ends_at=first - 1, until_s=now_s + 5)
        again = await one.rig.start("b")
        one.check(again)
        await one.rig.kill("b")
        one.rig.make_journal = functools.partial(BehindServer, ends_at=first - 1, until_s=now_s + 1_000)
        await expect_halt(one, f"halted at the snapshot of journal entry {first}: the journal ends with entry")


@in_virtual_time
async def test_a_journal_that_starts_after_its_snapshot_halts() -> None:
    async with stored_rig("a") as one:
        _, newer = await one.until_snapshots(2)
        await one.work(5)
        await one.rig.kill("a")
        one.journal.purge(newer + 3)
        await expect_halt(
            one,
            f"the newest good snapshot is of entry {newer}, but journal entries {newer + 1} to {newer + 2} are gone. "
            rf"Nothing was changed or deleted. Restore the newest object in snapshots/",
        )


class PurgedAtFirst(MemoryJournal):
    """Purges entries that a start needs, between its requests and its first read."""

    def __init__(self, store: MemoryJournalStore, purge: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._purge: Callable[[], Awaitable[None]] | None = purge

    async def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        purge, self._purge = self._purge, None
        if purge is not None:
            await purge()
        async for group in super().tail(after):
            yield group


@pytest.mark.parametrize("snapshots_before", [0, 2])
def test_a_start_overtaken_by_a_purge_loads_a_newer_snapshot(snapshots_before: int) -> None:
    @in_virtual_time
    async def check() -> None:
        async with stored_rig("a") as one:
            await one.work(5)
            await one.until_snapshots(snapshots_before)

            async def work_until_trimmed() -> None:
                await one.until_snapshots(3)
                await one.until_trimmed()

            one.rig.make_journal = functools.partial(PurgedAtFirst, purge=work_until_trimmed)
            again = await one.rig.start("b")
            assert one.journal.first_sequence > 1
            one.check(again)
            assert again.metric("halted") == 0

    check()


@in_virtual_time
async def test_a_purged_journal_without_a_good_snapshot_halts() -> None:
    async with stored_rig("a") as one:
        older, newer = await one.until_snapshots(2)
        await one.until_trimmed()
        await one.rig.kill("a")
        await one.damage(older)
        await one.damage(newer)
        await expect_halt(one, f"there is no good snapshot, but journal entries 1 to {older} are gone")
        await one.objects.delete(await one.keys(snapshots_prefix("", CLUSTER)))
        await expect_halt(one, f"there is no good snapshot, but journal entries 1 to {older} are gone")


@in_virtual_time
async def test_a_journal_with_other_entries_than_the_snapshot_halts() -> None:
    async with stored_rig("a") as one:
        _, newer = await one.until_snapshots(2)
        await one.rig.kill("a")
        other = encode_entry(Entry("x.1", "x", newer - 1, bytes(16), [[Tick(1)]]))
        one.journal.replace(newer, other)
        await expect_halt(one, f"the journal's entry {newer} differs from the one in the snapshot")


@in_virtual_time
async def test_an_entry_after_the_snapshot_that_builds_on_another_past_halts() -> None:
    async with stored_rig("a") as one:
        _, newer = await one.until_snapshots(2)
        await one.rig.kill("a")
        one.journal.purge(newer + 1)  # so only the chain can show it
        one.journal.replace(newer + 1, encode_entry(Entry("x.1", "x", newer, bytes(16), [[Tick(1)]])))
        await expect_halt(one, f"entry {newer + 1} by x builds on another past: hash 0{{32}} at entry {newer}")


@in_virtual_time
async def test_an_entry_after_the_snapshot_that_is_damaged_or_too_new_halts() -> None:
    async with stored_rig("a") as one:
        _, newer = await one.until_snapshots(2)
        await one.rig.kill("a")
        entry = one.journal.entry(newer + 1)
        assert entry is not None
        one.journal.replace(newer + 1, entry[:-1] + bytes([entry[-1] ^ 1]))
        await expect_halt(one, f"entry {newer + 1}: journal entry with crc .* Restore the journal's stream")
        one.journal.replace(newer + 1, b"\x02" + entry[1:])
        await expect_halt(
            one, f"entry {newer + 1}: journal entry of version 2, this release knows 1. Upgrade this replica"
        )


@in_virtual_time
async def test_a_snapshot_of_a_later_release_halts_although_an_older_one_is_good() -> None:
    async with stored_rig("a") as one:
        _, newer = await one.until_snapshots(2)
        await one.rig.kill("a")
        key = snapshot_key("", CLUSTER, newer)
        data = later_version(await one.objects.get(key))
        await one.objects.delete([key])
        await one.objects.put(key, [data])
        with pytest.raises(Halted, match=r"snapshot of version 4, this release knows 3. Upgrade this replica"):
            await one.rig.start("b")


def later_version(data: bytes) -> bytes:
    head = data[:8] + (FORMAT_VERSION + 1).to_bytes(2, "big") + data[10:12]
    return head + crc32c.crc32c(head).to_bytes(4, "big") + data[16:]
