"""The tail index is always correct, also if announcements are late, repeated or lost."""

import itertools
import random
from collections import defaultdict

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.contracts.batches import Extent, SegmentRef
from penstock.contracts.messages import Advanced, PartitionAdvance
from penstock.contracts.queries.log import PartitionPlan
from penstock.contracts.rejections import Rejection
from penstock_gateway.tail.tail_index import PartitionKey, PartitionView, Tail, TailIndex, TailLimits

TOPIC = bytes(range(16))
KEY: PartitionKey = (TOPIC, 0)
EXTENT_BYTES = 100
PLENTY = 10**9
EXTENTS_MAX = 14  # few enough that partitions and extents are removed all the time
PARTITIONS = 3
LIMITS = TailLimits()


def extent(base: int, last: int) -> Extent:
    return Extent(base, last, SegmentRef(base.to_bytes(16), 0, 10_000, "f", "z"), 64, EXTENT_BYTES, 0)


def advance(high_watermark: int, *extents: Extent, key: PartitionKey = KEY, log_start: int = 0) -> PartitionAdvance:
    return PartitionAdvance(*key, log_start, high_watermark, high_watermark, list(extents))


def plan(high_watermark: int, *extents: Extent, rejection: Rejection = Rejection.NONE) -> PartitionPlan:
    return PartitionPlan(*KEY, rejection, 0, high_watermark, high_watermark, list(extents))


def following(sequence: int = 10, high_watermark: int = 5) -> TailIndex:
    """An index that knows partition KEY's end."""
    index = TailIndex()
    index.remove_all(sequence)
    assert index.lookup(KEY, 0, PLENTY) is None
    index.learn(sequence, plan(high_watermark), 0)
    return index


def test_nothing_is_known_of_a_partition_that_no_reader_asked_for() -> None:
    index = TailIndex()
    index.remove_all(1)
    index.apply(2, [advance(5, extent(0, 4))])
    assert index.lookup(KEY, 5, PLENTY) is None


def test_the_end_is_known_from_a_plan_on() -> None:
    assert following().lookup(KEY, 5, PLENTY) == PartitionView(0, 5, 5, [])


def test_announced_extents_follow_the_end() -> None:
    index = following()
    index.apply(11, [advance(8, extent(5, 7))])
    index.apply(12, [advance(9, extent(8, 8))])
    assert index.lookup(KEY, 6, PLENTY) == PartitionView(0, 9, 9, [extent(5, 7), extent(8, 8)])
    assert index.lookup(KEY, 8, PLENTY) == PartitionView(0, 9, 9, [extent(8, 8)])


def test_a_byte_budget_limits_the_listed_extents_to_at_least_one() -> None:
    index = following()
    index.apply(11, [advance(8, extent(5, 5), extent(6, 6), extent(7, 7))])
    for budget, count in ((-1, 1), (0, 1), (EXTENT_BYTES, 1), (EXTENT_BYTES + 1, 2), (PLENTY, 3)):
        view = index.lookup(KEY, 5, budget)
        assert view is not None
        assert len(view.extents) == count


@pytest.mark.parametrize("offset", [-1, 0, 4, 6, 100])
def test_a_plan_is_needed_for_offsets_before_the_held_extents_and_after_the_end(offset: int) -> None:
    assert following().lookup(KEY, offset, PLENTY) is None


def test_a_plan_from_before_the_first_lookup_is_not_learnt() -> None:
    index = TailIndex()
    index.remove_all(10)
    index.lookup(KEY, 0, PLENTY)
    index.learn(9, plan(5), 0)
    assert index.lookup(KEY, 5, PLENTY) is None


def test_a_plan_older_than_the_announcements_changes_nothing() -> None:
    index = following()
    index.apply(11, [advance(8, extent(5, 7))])
    index.learn(10, plan(5), 0)
    assert index.lookup(KEY, 8, PLENTY) == PartitionView(0, 8, 8, [])


def test_a_plan_newer_than_the_announcements_is_not_undone_by_them() -> None:
    index = following()
    index.learn(12, plan(9, extent(5, 7), extent(8, 8)), 0)
    index.apply(11, [advance(8, extent(5, 7))])
    index.apply(12, [advance(9, extent(8, 8))])
    assert index.lookup(KEY, 9, PLENTY) == PartitionView(0, 9, 9, [])
    assert index.lookup(KEY, 5, PLENTY) == PartitionView(0, 9, 9, [extent(5, 7), extent(8, 8)])
    assert index.held_extents == 2


def test_a_plan_that_ends_before_the_end_is_not_held() -> None:
    index = following()
    index.learn(12, plan(9, extent(5, 7)), 0)
    assert index.lookup(KEY, 5, PLENTY) is None
    assert index.lookup(KEY, 9, PLENTY) == PartitionView(0, 9, 9, [])
    assert index.held_extents == 0


def test_a_rejected_plan_is_not_learnt() -> None:
    index = TailIndex()
    index.remove_all(10)
    index.lookup(KEY, 0, PLENTY)
    index.learn(10, plan(0, rejection=Rejection.OFFSET_OUT_OF_RANGE), 0)
    assert index.lookup(KEY, 0, PLENTY) is None


def test_an_extent_after_a_gap_replaces_those_before() -> None:
    index = following()
    index.apply(11, [advance(8, extent(5, 7))])
    index.apply(12, [advance(12, extent(10, 11))])
    assert index.lookup(KEY, 5, PLENTY) is None
    assert index.lookup(KEY, 10, PLENTY) == PartitionView(0, 12, 12, [extent(10, 11)])
    assert index.held_extents == 1


def test_extents_below_the_log_start_are_dropped() -> None:
    index = following()
    index.apply(11, [advance(7, extent(5, 5), extent(6, 6))])
    index.apply(12, [advance(7, log_start=6)])
    assert index.lookup(KEY, 5, PLENTY) is None
    assert index.lookup(KEY, 6, PLENTY) == PartitionView(6, 7, 7, [extent(6, 6)])
    assert index.held_extents == 1


def test_a_new_log_start_alone_drops_the_extents_before_it_and_keeps_the_rest() -> None:
    index = following()
    index.apply(11, [advance(8, extent(5, 7))])
    index.apply(12, [advance(9, extent(8, 8))])
    index.apply(13, [advance(9, log_start=7)])
    assert index.lookup(KEY, 6, PLENTY) is None
    assert index.lookup(KEY, 7, PLENTY) == PartitionView(7, 9, 9, [extent(5, 7), extent(8, 8)])
    index.apply(14, [advance(9, log_start=9)])
    assert index.lookup(KEY, 8, PLENTY) is None
    assert index.lookup(KEY, 9, PLENTY) == PartitionView(9, 9, 9, [])
    index.apply(15, [advance(10, extent(9, 9), log_start=9)])
    assert index.lookup(KEY, 9, PLENTY) == PartitionView(9, 10, 10, [extent(9, 9)])
    assert index.held_extents == 1


def test_a_new_log_start_alone_shows_the_end_of_a_partition_that_is_not_known_yet() -> None:
    index = TailIndex()
    index.remove_all(10)
    assert index.lookup(KEY, 3, PLENTY) is None
    index.apply(11, [advance(9, log_start=7)])
    assert index.lookup(KEY, 9, PLENTY) == PartitionView(7, 9, 9, [])
    assert index.lookup(KEY, 8, PLENTY) is None


def test_extents_after_the_known_end_are_added_if_those_between_are_deleted() -> None:
    index = following(high_watermark=5)
    index.apply(11, [advance(5, extent(3, 4))])
    index.apply(12, [advance(9, extent(7, 8), log_start=7)])
    assert index.lookup(KEY, 7, PLENTY) == PartitionView(7, 9, 9, [extent(7, 8)])
    assert index.held_extents == 1


def test_the_least_recently_read_partition_is_removed_first() -> None:
    index = TailIndex(TailLimits(extents_max=3))
    index.remove_all(1)
    keys = [(TOPIC, number) for number in range(4)]
    for key in keys[:3]:
        index.lookup(key, 0, PLENTY)
        index.learn(1, PartitionPlan(*key, Rejection.NONE, 0, 0, 0, []), 0)
    assert index.lookup(keys[0], 0, PLENTY) is not None
    index.lookup(keys[3], 0, PLENTY)
    assert [index.lookup(key, 0, PLENTY) is not None for key in (keys[0], keys[2])] == [True, True]
    assert index.lookup(keys[1], 0, PLENTY) is None


def test_a_single_partition_loses_its_oldest_extents_and_keeps_its_end() -> None:
    index = TailIndex(TailLimits(extents_max=3))
    index.remove_all(1)
    index.lookup(KEY, 0, PLENTY)
    index.learn(1, plan(0), 0)
    for offset in range(5):
        index.apply(2 + offset, [advance(offset + 1, extent(offset, offset))])
    assert index.held_extents == 2
    assert index.lookup(KEY, 2, PLENTY) is None
    view = index.lookup(KEY, 3, PLENTY)
    assert view is not None
    assert view.extents == [extent(3, 3), extent(4, 4)]


def test_a_removed_partition_holds_nothing() -> None:
    index = following()
    index.apply(11, [advance(8, extent(5, 7))])
    index.remove(KEY)
    assert index.held_extents == 0
    assert index.lookup(KEY, 8, PLENTY) is None


def test_announcements_out_of_order_are_applied_in_order() -> None:
    tail = Tail(following())
    assert tail.receive(Advanced(12, [advance(9, extent(8, 8))], ["b"]), 1.0).partitions == []
    assert tail.overdue_s(1.0) == pytest.approx(LIMITS.hold_back_s)
    received = tail.receive(Advanced(11, [advance(8, extent(5, 7))], ["a"]), 1.01)
    assert (received.partitions, received.topics, received.lost) == ([KEY, KEY], ["a", "b"], False)
    assert tail.overdue_s(1.01) is None
    view = tail.index.lookup(KEY, 5, PLENTY)
    assert view is not None
    assert view.high_watermark == 9


def test_a_missing_announcement_is_given_up_when_it_is_overdue() -> None:
    tail = Tail(following())
    tail.receive(Advanced(13, [], []), 1.0)
    assert not tail.expire(1.0 + LIMITS.hold_back_s / 2).lost
    assert tail.expire(1.0 + LIMITS.hold_back_s).lost
    assert tail.index.applied == 13
    assert tail.overdue_s(2.0) is None
    assert tail.index.lookup(KEY, 5, PLENTY) is None


def test_too_many_announcements_after_a_missing_one_are_not_kept() -> None:
    tail = Tail(following())
    lost = [tail.receive(Advanced(12 + number, [], []), 1.0).lost for number in range(LIMITS.held_back_max + 1)]
    assert lost == [False] * LIMITS.held_back_max + [True]


def test_the_first_announcement_clears_the_index() -> None:
    tail = Tail(TailIndex())
    assert tail.receive(Advanced(7, [], []), 0.0).lost
    assert tail.index.applied == 7


class Run:
    """Commits and moving log starts; announcements at once, late, in any order, twice or never; late plans."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tail = Tail(TailIndex(TailLimits(extents_max=EXTENTS_MAX)))
        self.now_s = 0.0
        self.sequence = 0
        self.log: dict[int, list[Extent]] = defaultdict(list)
        self.ends: list[dict[int, int]] = [{}]  # ends[sequence][partition]
        self.starts: list[dict[int, int]] = [{}]
        self.late: list[Advanced] = []
        self.plans: list[tuple[int, PartitionPlan, int]] = []
        self.answers = 0

    def end(self, partition: int, sequence: int | None = None) -> int:
        return self.ends[self.sequence if sequence is None else sequence].get(partition, 0)

    def start(self, partition: int, sequence: int | None = None) -> int:
        return self.starts[self.sequence if sequence is None else sequence].get(partition, 0)

    def step(self) -> None:
        steps = [self.commit, self.look, self.deliver_late, self.learn, self.wait]
        self.chance.choices(steps, [10, 10, 3, 4, 1])[0]()
        assert 0 <= self.tail.index.held_extents <= EXTENTS_MAX

    def commit(self) -> None:
        """One entry: some partitions grow; of one of them, or another, the log start moves, perhaps to the end."""
        ends, starts = dict(self.ends[-1]), dict(self.starts[-1])
        added: dict[int, list[Extent]] = {}
        for partition in self.chance.sample(range(PARTITIONS), self.chance.randrange(PARTITIONS)):
            base = ends.get(partition, 0)
            counts = [self.chance.randint(1, 3) for _ in range(self.chance.randint(1, 2))]
            lasts = list(itertools.accumulate(counts, initial=base - 1))
            fresh = [extent(before + 1, last) for before, last in itertools.pairwise(lasts)]
            ends[partition] = lasts[-1] + 1
            self.log[partition] += fresh
            added[partition] = fresh
        if self.chance.random() < 0.2:
            partition = self.chance.randrange(PARTITIONS)
            starts[partition] = self.chance.randint(starts.get(partition, 0), ends.get(partition, 0))
            added.setdefault(partition, [])
        self.sequence += 1
        self.ends.append(ends)
        self.starts.append(starts)
        advances = [self.advance_of(partition, extents) for partition, extents in added.items()]
        self.announce(Advanced(self.sequence, advances, []))

    def advance_of(self, partition: int, extents: list[Extent]) -> PartitionAdvance:
        start = self.start(partition)
        left = [
            each for each in extents if each.last_offset >= start
        ]  # extents that are deleted at once are not announced
        return advance(self.end(partition), *left, key=(TOPIC, partition), log_start=start)

    def announce(self, announcement: Advanced) -> None:
        draw = self.chance.random()
        if draw < 0.85:
            self.tail.receive(announcement, self.now_s)
        if 0.8 < draw < 0.97:
            self.late.append(announcement)

    def deliver_late(self) -> None:
        if self.late:
            self.tail.receive(self.late.pop(self.chance.randrange(len(self.late))), self.now_s)

    def wait(self) -> None:
        self.now_s += self.chance.choice([LIMITS.hold_back_s / 3, 2 * LIMITS.hold_back_s])
        self.tail.expire(self.now_s)

    def look(self) -> None:
        partition = self.chance.randrange(PARTITIONS)
        end, applied = self.end(partition), self.tail.index.applied
        offset = end if self.chance.random() < 0.5 else self.chance.randint(max(end - 10, 0), end + 1)
        view = self.tail.index.lookup((TOPIC, partition), offset, PLENTY)
        if view is None:
            self.plan(partition, min(offset, end))
            return
        self.answers += 1
        assert self.end(partition, applied) <= view.high_watermark <= end
        assert self.start(partition, applied) <= view.log_start_offset <= self.start(partition)
        assert view.log_start_offset <= offset <= view.high_watermark
        assert view.extents == [
            each for each in self.log[partition] if offset <= each.last_offset < view.high_watermark
        ]

    def plan(self, partition: int, offset: int) -> None:
        sequence = self.chance.randint(self.tail.index.applied or 0, self.sequence)
        start, end = self.start(partition, sequence), self.end(partition, sequence)
        rejection = Rejection.NONE if offset >= start else Rejection.OFFSET_OUT_OF_RANGE
        listed = [each for each in self.log[partition] if offset <= each.last_offset < end]
        if self.chance.random() < 0.2:
            listed = listed[: len(listed) // 2]
        if rejection:
            listed = []
        self.plans.append((sequence, PartitionPlan(TOPIC, partition, rejection, start, end, end, listed), offset))
        if self.chance.random() < 0.6:
            self.tail.index.learn(*self.plans.pop())

    def learn(self) -> None:
        if self.plans:
            self.tail.index.learn(*self.plans.pop(self.chance.randrange(len(self.plans))))


def played(seed: int) -> Run:
    run = Run(random.Random(seed))
    for _ in range(300):
        run.step()
    return run


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_tail_index_is_correct_with_any_order_and_loss_of_announcements_and_plans(seed: int) -> None:
    played(seed)


def test_most_walks_get_answers_of_the_tail_index() -> None:
    assert sum(played(seed).answers > 0 for seed in range(10)) > 5
