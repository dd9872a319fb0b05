"""One custodian at a time: it gets and keeps its lease, works, and stops when it loses custody or was stalled."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from penstock.contracts.codec import Buffer
from penstock.contracts.commands import RecordArchived, ReleaseCustody, TakeCustody, Tick
from penstock.contracts.errors import Unavailable
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import journal_archive_prefix
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS
from penstock_sequencer.custodian.lease import CUSTODY_LIMITS
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import CLUSTER, Running, SequencerRig, rig

LEASE_S = CUSTODY_LEASE_MS / 1000
BACK_OFF_S, FRUITLESS_S_MAX = CUSTODY_LIMITS.back_off_s, CUSTODY_LIMITS.fruitless_s_max


class Work:
    """A custodian's work, which counts its starts and knows whether it runs."""

    def __init__(self, running: Running) -> None:
        self.starts = 0
        self.is_going_on = False
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.custody = running.sequencer.custody
        self.custody.add(self.run)

    async def run(self) -> None:
        self.starts += 1
        self.is_going_on = True
        try:
            await asyncio.shield(self.failure)
        finally:
            self.is_going_on = False


class Keepers:
    """Replicas that all try to become custodian, and their work."""

    def __init__(self, built: SequencerRig) -> None:
        self.rig = built
        self.work: dict[str, Work] = {}

    async def start(self, name: str) -> None:
        self.work[name] = Work(await self.rig.start(name))

    async def kill(self, name: str) -> None:
        del self.work[name]
        await self.rig.kill(name)

    @property
    def working(self) -> list[str]:
        return [name for name, each in self.work.items() if each.is_going_on]

    async def until_one_works(self) -> str:
        await until(lambda: self.working, 60)
        (name,) = self.working
        return name

    def takes(self) -> int:
        return sum(type(request[0]) is TakeCustody for entry in self.rig.entries() for request in entry.requests)


@asynccontextmanager
async def keepers(*names: str, objects: MemoryStore | None = None) -> AsyncIterator[Keepers]:
    async with rig(objects=objects or MemoryStore()) as built:
        made = Keepers(built)
        for name in names:
            await made.start(name)
        yield made


@in_virtual_time
async def test_one_of_several_becomes_custodian_soon_and_stays_so() -> None:
    async with keepers("a", "b", "c") as three:
        async with asyncio.timeout(9):
            custodian = await three.until_one_works()
        for _ in range(100):
            await asyncio.sleep(3)
            assert three.working == [custodian]
        assert three.work[custodian].starts == 1
        assert three.rig.running[custodian].metric("custodian") == 1


@in_virtual_time
async def test_an_idle_cluster_journals_only_ticks_and_a_renewal_every_ten_seconds() -> None:
    async with keepers("a", "b") as two:
        await two.until_one_works()
        before, takes = two.rig.store.last_sequence, two.takes()
        await asyncio.sleep(600)
        renewed = two.takes() - takes
        entries = two.rig.entries()[before:]  # a request may share the entry of a Tick
        kinds = Counter(type(request[0]) for entry in entries for request in entry.requests)
        assert 45 <= renewed == kinds.pop(TakeCustody) <= 62
        assert kinds.pop(Tick) <= 620
        assert kinds.pop(RecordArchived) <= 10  # these renew the lease too
        assert not kinds


@in_virtual_time
async def test_another_replica_follows_a_dead_custodian_at_the_end_of_its_lease() -> None:
    async with keepers("a", "b") as two:
        first = await two.until_one_works()
        await two.kill(first)
        (second,) = two.work
        await asyncio.sleep(LEASE_S / 2 - 2)
        assert two.working == []
        async with asyncio.timeout(LEASE_S):
            assert await two.until_one_works() == second


@in_virtual_time
async def test_a_restarted_replica_follows_its_own_former_instance() -> None:
    async with keepers("a") as one:
        await one.until_one_works()
        await one.kill("a")
        await one.start("a")
        async with asyncio.timeout(LEASE_S + 3):
            await one.until_one_works()


@in_virtual_time
async def test_a_stalled_custodian_stops_before_it_does_anything_else() -> None:
    async with keepers("a", "b") as two:
        first = await two.until_one_works()
        running, work = two.rig.running[first], two.work[first]
        assert work.custody.is_ours
        running.clock.skip(LEASE_S + 1)
        assert not work.custody.is_ours
        await until(lambda: not work.is_going_on)
        await two.until_one_works()


HOUR_MS = 3_600_000


async def bring_the_clock_an_hour_ahead(some: Keepers) -> str:
    """Set one replica's clock ahead, and by its next command the machine's; returns the custodian with such a lease."""
    clock = next(iter(some.rig.running.values())).clock
    clock.ahead_ms = HOUR_MS
    proposer = next(iter(some.rig.running.values())).sequencer.proposer
    await proposer.propose([Tick(clock.now_ms())])
    await asyncio.sleep(LEASE_S)
    return await some.until_one_works()


@in_virtual_time
async def test_another_replica_follows_within_a_minute_a_custodian_that_died_with_its_clock_an_hour_ahead() -> None:
    async with keepers("a", "b", "c") as three:
        await three.until_one_works()
        await three.kill(await bring_the_clock_an_hour_ahead(three))
        async with asyncio.timeout(60):
            await three.until_one_works()


@in_virtual_time
async def test_a_live_custodian_keeps_custody_while_the_machines_clock_stands_still() -> None:
    async with keepers("a", "b", "c") as three:
        await three.until_one_works()
        custodian = await bring_the_clock_an_hour_ahead(three)
        starts = three.work[custodian].starts
        for _ in range(200):
            await asyncio.sleep(3)
            assert three.working == [custodian]
        assert three.work[custodian].starts == starts


@in_virtual_time
async def test_a_stalled_custodian_stops_also_while_the_machines_clock_stands_still() -> None:
    async with keepers("a", "b") as two:
        await two.until_one_works()
        await bring_the_clock_an_hour_ahead(two)
        two.rig.running[
            "a"
        ].clock.ahead_ms = 0  # from now on all clocks are right, and the machine's clock stands still
        custodian = await two.until_one_works()
        work = two.work[custodian]
        assert work.custody.is_ours
        two.rig.running[custodian].clock.skip(LEASE_S + 1)
        assert not work.custody.is_ours


@in_virtual_time
async def test_a_custodian_that_drains_releases_custody_at_once() -> None:
    async with keepers("a", "b") as two:
        first = await two.until_one_works()
        (second,) = two.work.keys() - {first}
        work = two.work[first]
        await two.rig.running[first].sequencer.drain()
        assert not work.custody.is_ours
        async with asyncio.timeout(3):
            await until(lambda: two.working == [second])
        assert ReleaseCustody in {type(entry.requests[0][0]) for entry in two.rig.entries()}
        await asyncio.sleep(3 * LEASE_S)
        assert two.working == [second]


@in_virtual_time
async def test_a_drain_does_not_wait_for_a_journal_that_accepts_nothing() -> None:
    async with keepers("a") as one:
        await one.until_one_works()
        one.rig.store.set_available(False)
        async with asyncio.timeout(5):
            await one.rig.running["a"].sequencer.drain()


@in_virtual_time
async def test_without_a_journal_the_custodian_stops_with_its_lease_and_continues_later() -> None:
    async with keepers("a") as one:
        await one.until_one_works()
        one.rig.store.set_available(False)
        async with asyncio.timeout(LEASE_S + 1):
            await until(lambda: not one.working, LEASE_S + 1)
        with pytest.raises(Unavailable):
            await one.work["a"].custody.record_archived(1)
        one.rig.store.set_available(True)
        await one.until_one_works()
        assert one.work["a"].starts == 2


@in_virtual_time
async def test_only_the_custodian_can_record_the_archive() -> None:
    async with keepers("a", "b") as two:
        custodian = await two.until_one_works()
        (other,) = two.work.keys() - {custodian}
        await until(lambda: two.rig.store.last_sequence >= 3)
        assert await two.work[custodian].custody.record_archived(2)
        assert await two.work[custodian].custody.record_snapshot(1)
        assert not await two.work[other].custody.record_archived(3)
        assert not await two.work[other].custody.record_snapshot(3)
        custody = two.rig.running[custodian].sequencer.replica.state.custody
        assert (custody.archived_sequence, custody.snapshots) == (2, [1])


class CutOff(MemoryStore):
    """Rejects archive objects of the replicas in `is_cut_off`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut_off: Callable[[], bool] = lambda: False

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        if key.startswith(journal_archive_prefix("", CLUSTER)) and self.is_cut_off():
            raise Unavailable("cut off")
        return await super().put(key, body, if_match=if_match)


@in_virtual_time
async def test_a_custodian_without_progress_lets_another_replica_take_custody() -> None:
    store = CutOff()
    async with keepers("a", "b", objects=store) as two:
        first = await two.until_one_works()
        (second,) = two.work.keys() - {first}
        store.is_cut_off = lambda: two.working == [first]
        await two.rig.client.command([two.rig.create_topic("t")], deadline_s=5)
        last = two.rig.client.seen_sequence
        await asyncio.sleep(FRUITLESS_S_MAX - 10)
        assert two.working == [first]
        await until(lambda: two.working == [second], LEASE_S + 15)
        await until(lambda: two.rig.running[second].metric("archived_sequence") >= last)
        await asyncio.sleep(BACK_OFF_S + FRUITLESS_S_MAX + LEASE_S)
        assert two.working == [second]


@in_virtual_time
async def test_the_only_replica_tries_again_after_a_long_time_without_progress() -> None:
    store = CutOff()
    async with keepers("a", objects=store) as one:
        await one.until_one_works()
        store.is_cut_off = lambda: True
        await one.rig.client.command([one.rig.create_topic("t")], deadline_s=5)
        last = one.rig.client.seen_sequence
        await until(lambda: not one.working, FRUITLESS_S_MAX + LEASE_S + 5)
        store.is_cut_off = lambda: False
        await until(lambda: one.working, BACK_OFF_S + 5)
        await until(lambda: one.rig.running["a"].metric("archived_sequence") >= last)


@in_virtual_time
async def test_a_worker_that_fails_ends_the_replica() -> None:
    async with keepers("a") as one:
        await one.until_one_works()
        one.work["a"].failure.set_exception(RuntimeError("a bug"))
        running = one.rig.running.pop("a")
        with pytest.raises(BaseExceptionGroup) as caught:
            await running.task
        assert caught.group_contains(RuntimeError, match="a bug")
        await running.bus.close()


@in_virtual_time
async def test_without_a_store_no_replica_becomes_custodian() -> None:
    async with rig("a") as one:
        await asyncio.sleep(60)
        assert one.running["a"].sequencer.replica.state.custody.holder == ""


@in_virtual_time
async def test_a_process_ends_although_its_custodian_is_just_ending_the_work() -> None:
    """Work ends slowly while an upload is aborted; the drain of a process may be over before that."""
    async with rig(objects=MemoryStore()) as built:
        await built.start("a")
        running = built.running.pop("a")
        custody, begun, ending = running.sequencer.custody, asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ending.set()
                await asyncio.sleep(1)

        custody.add(work)
        await asyncio.wait_for(begun.wait(), 60)
        await custody.release()
        await asyncio.wait_for(ending.wait(), 60)
        running.task.cancel()
        await asyncio.wait({running.task}, timeout=10)
        assert running.task.cancelled()
