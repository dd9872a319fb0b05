"""The parts of share groups in a gateway: sessions, queues, acknowledgements, and the choice of batches."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.batches import AbortedTransaction
from penstock.contracts.commands import AcknowledgedRange, AcquiredRange, OffsetRange
from penstock.kafkawire.api.share_fetch import AcknowledgementBatch
from penstock.kafkawire.records import Record, build_batch, place_batch
from penstock_gateway.share.ack_validation import acknowledged_ranges
from penstock_gateway.share.batch_scan import GAPS_MAX, ReadBatch, batches_of, choose, with_acquired
from penstock_gateway.share.partition_queue import PartitionQueues, QueueSlot
from penstock_gateway.tail.tail_subscriber import TailWatch

T0, T1 = (b"t" * 16, 0), (b"t" * 16, 1)


def new_watch() -> TailWatch:
    return TailWatch({}, [])


async def is_woken(watch: TailWatch) -> bool:
    return await watch.until(asyncio.get_running_loop().time())


async def test_one_member_at_a_time_has_the_slot_and_the_next_is_woken_when_it_is_free() -> None:
    queues, first, second = PartitionQueues(), new_watch(), new_watch()
    with queues.take("g", [T0], first) as slot:
        assert slot.keys == [T0]
        with queues.take("g", [T0, T1], second) as theirs:
            assert theirs.keys == [T1]
        with queues.take("other", [T0], second) as others:
            assert others.keys == [T0]
        assert not await is_woken(second)
    assert await is_woken(second)
    assert not await is_woken(first), "a member without success was woken by its own slot"
    with queues.take("g", [T0], second) as slot:
        assert slot.keys == [T0]


class Crowd:
    """Members of one group that look at one partition, which has records for so many of them."""

    def __init__(self, count: int) -> None:
        self.queues = PartitionQueues()
        self.watches: dict[tuple[bytes, int], dict[TailWatch, None]] = {}
        self.left = self.looks = self.asked = self.fed = self.busy = 0
        self.tasks = [asyncio.create_task(self._member()) for _ in range(count)]

    async def _member(self) -> None:
        while True:
            with TailWatch(self.watches, [T0]) as watch, self.queues.waiting("g", [T0], watch):
                self.looks += 1
                self.busy += 1
                with self.queues.take("g", [T0], watch) as slot:
                    if slot.keys:
                        await self._ask(slot)
                self.busy -= 1
                await watch.until(asyncio.get_running_loop().time() + 1_000)

    async def _ask(self, slot: QueueSlot) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if not self.left:
            slot.empty.update(slot.keys)
            return
        self.left -= 1
        self.fed += 1

    async def settle(self) -> None:
        """Wait until no member has anything to do: the loop runs everything ready in each turn."""
        looks = -1
        while looks != self.looks or self.busy:
            looks = self.looks
            for _ in range(5):
                await asyncio.sleep(0)

    async def look_at_new_data(self, left: int) -> None:
        """New data arrives, with records for so many members."""
        await self.settle()
        self.left, self.looks, self.asked, self.fed = left, 0, 0, 0
        for watch in list(self.watches[T0]):
            watch.wake()
        await self.settle()

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("left", [0, 1, 7])
async def test_new_data_costs_each_member_one_look_and_queries_only_for_members_that_get_something(left: int) -> None:
    crowd = Crowd(60)
    await crowd.look_at_new_data(left)
    assert (crowd.fed, crowd.asked) == (left, left + 1)
    assert crowd.looks <= 60 + left
    await crowd.end()
    assert (crowd.watches, crowd.queues.places) == ({}, 0), "a member stayed in a queue"


async def test_the_first_waiting_member_is_woken_beside_a_busy_one() -> None:
    """A busy member may return with records of another partition, and not look at this one."""
    queues, holder = PartitionQueues(), new_watch()
    watches = [new_watch() for _ in range(3)]
    busy, *waiting = watches
    with queues.take("g", [T0], holder):
        for watch in watches:
            with queues.take("g", [T0], watch) as slot:
                assert not slot.keys
        waits = [asyncio.create_task(watch.until(asyncio.get_running_loop().time() + 1_000)) for watch in waiting]
        await asyncio.sleep(0)
    assert await waits[0]
    assert await is_woken(busy)
    assert not waits[1].done()
    waiting[1].wake()
    assert await waits[1]


async def test_new_data_that_arrives_during_a_look_wakes_the_next_member() -> None:
    queues, first, second = PartitionQueues(), new_watch(), new_watch()
    with queues.take("g", [T0], first) as slot:
        slot.empty.add(T0)
        with queues.take("g", [T0], second):
            pass
        first.wake()
    assert await is_woken(second)


async def test_a_waiting_member_is_woken_when_records_of_its_group_are_released() -> None:
    queues, watch, stranger = PartitionQueues(), new_watch(), new_watch()
    with queues.waiting("g", [T0], watch), queues.waiting("other", [T0], stranger):
        queues.wake("g")
    queues.wake("other")
    assert await is_woken(watch)
    assert not await is_woken(stranger)


def batches_from(*batches: tuple[int, int, list[int]]) -> list[AcknowledgementBatch]:
    return [AcknowledgementBatch(*batch) for batch in batches]


def test_acknowledgements_have_one_type_or_one_for_each_offset() -> None:
    acknowledged = acknowledged_ranges(batches_from((1, 3, [1]), (5, 6, [2, 3])), renews=False)
    assert acknowledged == [AcknowledgedRange(1, 3, b"\1"), AcknowledgedRange(5, 6, b"\2\3")]


@pytest.mark.parametrize(
    "batches",
    [
        [(3, 2, [1])],
        [(-1, 2, [1])],
        [(1, 3, [])],
        [(1, 3, [1, 1])],
        [(1, 3, [4])],
        [(1, 3, [-1])],
        [(1, 3, [1]), (3, 4, [1])],
        [(5, 6, [1]), (1, 2, [1])],
    ],
)
def test_other_acknowledgements_are_refused(batches: Any) -> None:
    assert isinstance(acknowledged_ranges(batches_from(*batches), renews=False), str)


def test_a_renewal_is_only_valid_in_requests_with_renewals() -> None:
    assert acknowledged_ranges(batches_from((1, 1, [4])), renews=True) == [AcknowledgedRange(1, 1, b"\4")]
    assert isinstance(acknowledged_ranges(batches_from((1, 1, [4])), renews=False), str)


def read(*offsets: tuple[int, int], empty: tuple[int, ...] = ()) -> list[ReadBatch]:
    """Batches of ten bytes with these first and last offsets; batches that start at `empty` have no records."""
    return [
        ReadBatch(10 * place, 10 * place + 10, first, last, first not in empty)
        for place, (first, last) in enumerate(offsets)
    ]


def test_whole_batches_are_chosen_until_there_are_enough_records() -> None:
    chosen = choose(read((0, 4), (5, 9), (10, 14)), [OffsetRange(0, 14)], 7)
    assert chosen is not None
    assert (chosen.last, chosen.records_max, chosen.gaps) == (9, 10, [])


def test_only_offsets_within_the_windows_count() -> None:
    chosen = choose(read((0, 4), (5, 9), (10, 14)), [OffsetRange(3, 3), OffsetRange(12, 14)], 3)
    assert chosen is not None
    assert (chosen.last, chosen.records_max) == (14, 4)


def test_offsets_without_records_within_the_windows_are_gaps() -> None:
    batches = read((2, 3), (6, 6), (7, 9), empty=(6,))
    chosen = choose(batches, [OffsetRange(0, 4), OffsetRange(6, 20)], 100)
    assert chosen is not None
    assert chosen.gaps == [OffsetRange(0, 1), OffsetRange(4, 4), OffsetRange(6, 6)]
    assert (chosen.last, chosen.records_max) == (9, 5)


def test_a_batch_that_starts_before_the_window_is_no_gap() -> None:
    chosen = choose(read((0, 9)), [OffsetRange(4, 9)], 100)
    assert chosen is not None
    assert (chosen.last, chosen.records_max, chosen.gaps) == (9, 6, [])


def test_without_batches_or_windows_nothing_is_chosen() -> None:
    assert choose([], [OffsetRange(0, 9)], 5) is None
    assert choose(read((0, 3)), [], 5) is None


def test_many_batches_and_many_windows_are_scanned_once() -> None:
    """If members leave every second record to others, there are thousands of both."""

    class Counted(list[OffsetRange]):
        looks = 0

        def __getitem__(self, at: Any) -> Any:
            Counted.looks += 1
            found = super().__getitem__(at)
            Counted.looks += len(found) if isinstance(at, slice) else 0
            return found

        def __iter__(self) -> Iterator[OffsetRange]:
            Counted.looks += len(self)
            return super().__iter__()

    count = 500
    windows = Counted([OffsetRange(2 * number, 2 * number) for number in range(count)])
    chosen = choose(read(*[(number, number) for number in range(2 * count)]), windows, 10**6)
    assert chosen is not None
    assert (chosen.last, chosen.records_max) == (2 * count - 2, count)
    assert Counted.looks < 20 * count


def test_gaps_are_limited_and_none_before_the_end_is_missing() -> None:
    batches = read(*[(3 * number + 1, 3 * number + 2) for number in range(2 * GAPS_MAX)])
    chosen = choose(batches, [OffsetRange(0, 10**6)], 10**6)
    assert chosen is not None
    assert len(chosen.gaps) == GAPS_MAX
    assert chosen.last == 3 * GAPS_MAX - 1


def test_only_batches_with_acquired_records_are_sent_and_neighbours_in_one_fragment() -> None:
    data = b"".join(bytes([place]) * 10 for place in range(6))
    batches = read((0, 4), (5, 9), (10, 14), (15, 15), (16, 20), (21, 25), empty=(15,))
    acquired = [AcquiredRange(3, 6, 1), AcquiredRange(18, 22, 2)]
    fragments = with_acquired(data, batches, acquired)
    assert [bytes(fragment) for fragment in fragments] == [data[0:20], data[40:60]]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), max_size=12),
    st.lists(st.integers(1, 6), min_size=2, max_size=8),
    st.integers(1, 20),
)
def test_every_chosen_offset_has_a_record_or_is_a_gap(
    shapes: list[tuple[int, int, bool]], steps: list[int], records_max: int
) -> None:
    batches, offset = [], 0
    for place, (hole, count, has_records) in enumerate(shapes):
        offset += hole
        batches.append(ReadBatch(place, place + 1, offset, offset + count - 1, has_records))
        offset += count
    edges = [sum(steps[: place + 1]) - 1 for place in range(len(steps) // 2 * 2)]
    windows = [
        OffsetRange(first, last - 1) for first, last in zip(edges[::2], edges[1::2], strict=True) if last > first
    ]
    chosen = choose(batches, windows, records_max)
    available = {each for window in windows for each in range(window.first, window.last + 1)}
    with_records = {
        each for batch in batches if batch.has_records for each in range(batch.base_offset, batch.last_offset + 1)
    }
    if chosen is None:
        assert not batches or not windows or batches[-1].last_offset < windows[0].first
        return
    wanted = {each for each in available if each <= chosen.last}
    gaps = [each for gap in chosen.gaps for each in range(gap.first, gap.last + 1)]
    assert sorted(gaps) == sorted(wanted - with_records), "an offset without records is no gap, or twice"
    assert chosen.records_max == len(wanted & with_records)


def placed(data: bytes, offset: int) -> bytes:
    out = bytearray(data)
    place_batch(out, 0, offset, 0)
    return bytes(out)


def test_with_read_committed_records_of_aborted_transactions_do_not_count() -> None:
    record = [Record(value=b"v")]
    data = placed(build_batch(record, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), 5)
    data += placed(build_batch(record), 6)
    aborted = [AbortedTransaction(7, 5, 8)]
    assert [each.has_records for each in batches_of(data, aborted)] == [False, True]
    assert [each.has_records for each in batches_of(data, None)] == [True, True]
    assert [(each.base_offset, each.last_offset) for each in batches_of(data, None)] == [(5, 5), (6, 6)]
