"""Full tables of producers: the idlest are evicted, no batch appears twice, and no clock that leaps counts.

Also producers that a partition does not know, because their topic was deleted and made again (ADR 0025).
"""

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta
from penstock.contracts.commands import DeleteTopic, InitTransactionalProducer, RaiseLevel, Rejected, Tick
from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import (
    DEFAULT_LIMITS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    Limits,
    LogLimits,
    OffsetLimits,
    ProducerLimits,
    TransactionLimits,
)
from penstock_sequencer.core.state.producer_clock import producer_ms
from tests.unit.sequencer.core.core_world import World, batch, topic_id

IDLE_MS = DEFAULT_LIMITS.producers.producer_idle_min_ms
DAY_MS = 24 * HOUR_MS


def sent(producer: int, sequence: int, epoch: int = 0) -> BatchMeta:
    return batch(producer=producer, epoch=epoch, sequence=sequence)


def new_world(level: int = PRODUCERS_LEVEL, **limits: int) -> World:
    world = World(Limits(producers=ProducerLimits(**limits)), level)
    world.topic(partitions=2)
    return world


def full_world(count: int = 2, level: int = PRODUCERS_LEVEL) -> tuple[World, list[int]]:
    """A world whose partition 0 is full: its producers have one batch each, and one more has none."""
    world = new_world(level, producers_per_partition_max=count)
    producers = [world.producer() for _ in range(count + 1)]
    for producer in producers[:-1]:
        assert rejection(world, sent(producer, 0)) == Rejection.NONE
        pass_time(world, SECOND_MS)
    return world, producers


def rejection(world: World, meta: BatchMeta, number: int = 1, partition: int = 0) -> Rejection:
    return Rejection(world.produce(meta, number=number, partition=partition)[0].rejection)


def pass_time(world: World, duration_ms: int) -> None:
    """Let time pass as on a machine that runs: with Ticks so close that no step counts as a leap."""
    while duration_ms > 0:
        step_ms = min(duration_ms, world.state.limits.offsets.leap_max_ms)
        world.wait(step_ms)
        duration_ms -= step_ms


def leap(world: World, duration_ms: int) -> None:
    world.wait(duration_ms)


def known(world: World, partition: int = 0) -> list[int]:
    return list(world.partition(1, partition).producers)


# Clocks.


def test_a_clock_that_leaps_by_days_removes_no_producer() -> None:
    world = new_world()
    producer = world.producer()
    world.produce(sent(producer, 0))
    leap(world, 30 * DAY_MS)
    assert rejection(world, sent(producer, 1)) == Rejection.NONE
    assert [result.base_offset for result in world.produce(sent(producer, 0))] == [0]


def test_a_producer_is_removed_after_an_idle_day_of_uptime() -> None:
    world = new_world()
    producer = world.producer()
    world.produce(sent(producer, 0))
    pass_time(world, DAY_MS - MINUTE_MS)
    assert known(world) == [producer]
    pass_time(world, 12 * MINUTE_MS)  # the births of ids are recorded every ten minutes
    assert known(world) == []
    assert rejection(world, sent(producer, 1)) == Rejection.UNKNOWN_PRODUCER


def test_the_clock_of_producers_goes_on_when_the_cluster_comes_to_the_level() -> None:
    world = new_world(level=3)
    producer = world.producer()
    leap(world, DAY_MS // 2)
    world.produce(sent(producer, 0))
    before_ms = producer_ms(world.state)
    world.do(RaiseLevel(world.now_ms, PRODUCERS_LEVEL))
    assert producer_ms(world.state) == before_ms == world.now_ms
    leap(world, 30 * DAY_MS)
    assert producer_ms(world.state) == before_ms + MINUTE_MS
    assert known(world) == [producer]


def test_a_segment_born_far_in_the_future_is_not_committed_and_can_be_sent_again() -> None:
    world = new_world()
    born_ms = world.now_ms + DEFAULT_LIMITS.log.segment_ahead_max_ms
    runs = (1, 0, [batch()])
    outcome = world.do(world.segment_command(runs, born_ms=born_ms + 1))
    assert isinstance(outcome, Rejected) and outcome.rejection == Rejection.OVERLOADED
    assert world.do(world.segment_command(runs, born_ms=born_ms)).runs[0][0].rejection == Rejection.NONE


def test_the_longest_life_of_a_late_copy_is_within_the_idle_time_of_evicted_producers() -> None:
    """A late copy's segment is born a lease after its producer's last batch, by a clock this much ahead."""
    assert DEFAULT_LIMITS.log.segment_ahead_max_ms <= IDLE_MS - 5 * MINUTE_MS


# Full tables.


def test_a_full_partition_evicts_the_idlest_and_keeps_the_others() -> None:
    world, (first, second, third, fourth) = full_world(3)
    pass_time(world, IDLE_MS)
    world.produce(sent(second, 1))
    assert rejection(world, sent(fourth, 0)) == Rejection.NONE
    assert known(world) == [second, fourth]  # the third was idle for long enough, too
    assert rejection(world, sent(third, 1)) == rejection(world, sent(first, 1)) == Rejection.UNKNOWN_PRODUCER


def test_a_full_partition_evicts_no_more_than_a_part_at_once() -> None:
    world = new_world(producers_per_partition_max=4, producers_evicted_at_once=1)
    producers = [world.producer() for _ in range(5)]
    for producer in producers[:4]:
        world.produce(sent(producer, 0))
        pass_time(world, SECOND_MS)
    pass_time(world, IDLE_MS)
    assert rejection(world, sent(producers[4], 0)) == Rejection.NONE
    assert known(world) == producers[1:]


def test_a_full_partition_of_active_producers_rejects_another_one_for_the_time_being() -> None:
    world, (first, _, third) = full_world()
    assert rejection(world, sent(third, 0)) == Rejection.PRODUCERS_FULL
    assert rejection(world, sent(first, 1)) == Rejection.NONE
    assert rejection(world, sent(third, 0), partition=1) == Rejection.NONE
    pass_time(world, IDLE_MS + SECOND_MS)
    assert rejection(world, sent(third, 0)) == Rejection.NONE


def test_the_late_copy_of_an_evicted_producers_batch_is_not_committed() -> None:
    """A flusher that was paused commits up to `segment_commit_age_max_ms` later."""
    world, (first, _, third) = full_world()
    copy = world.segment_command((1, 0, [sent(first, 0)]))
    pass_time(world, IDLE_MS + SECOND_MS)
    assert rejection(world, sent(third, 0)) == Rejection.NONE
    assert first not in known(world)
    high_watermark = world.partition().high_watermark
    late = world.do(msgspec.structs.replace(copy, now_ms=world.now_ms))
    assert late.runs[0][0].rejection == Rejection.PRODUCERS_FULL
    assert world.partition().high_watermark == high_watermark


def test_below_the_level_the_late_copy_is_committed_again() -> None:
    """This shows the fault that the level mends: replicas of earlier releases must apply such entries as before."""
    world, (first, _, third) = full_world(level=PRODUCERS_LEVEL - 1)
    copy = world.segment_command((1, 0, [sent(first, 0)]))
    pass_time(world, IDLE_MS + SECOND_MS)
    world.produce(sent(third, 0))
    late = world.do(msgspec.structs.replace(copy, now_ms=world.now_ms))
    assert late.runs[0][0].rejection == Rejection.NONE


def test_a_new_producer_in_an_old_segment_is_accepted_when_it_is_sent_again() -> None:
    world, (_, _, third) = full_world()
    fourth = world.producer()
    old = world.segment_command((1, 0, [sent(fourth, 0)]))
    pass_time(world, IDLE_MS + SECOND_MS)
    world.produce(sent(third, 0))
    assert world.do(old).runs[0][0].rejection == Rejection.PRODUCERS_FULL
    assert rejection(world, sent(fourth, 0)) == Rejection.NONE


def test_an_unknown_producer_in_the_middle_gets_the_log_start_so_that_the_java_client_begins_a_new_epoch() -> None:
    world, (first, _, third) = full_world()
    pass_time(world, IDLE_MS + SECOND_MS)
    world.produce(sent(third, 0))
    (result,) = world.produce(sent(first, 1))
    assert (result.rejection, result.log_start_offset) == (Rejection.UNKNOWN_PRODUCER, 0)
    assert rejection(world, sent(first, 0, epoch=1)) == Rejection.NONE


def test_the_producer_of_an_open_transaction_is_not_evicted() -> None:
    world = World(Limits(producers=ProducerLimits(producers_per_partition_max=2)), PRODUCERS_LEVEL)
    world.topic()
    ids = world.do(InitTransactionalProducer(world.now_ms, "x", 15 * MINUTE_MS))
    meta = batch(producer=ids.producer_id, epoch=ids.producer_epoch, sequence=0, attributes=TRANSACTIONAL, adds=True)
    assert rejection(world, meta) == Rejection.NONE
    second, third = world.producer(), world.producer()
    world.produce(sent(second, 0))
    pass_time(world, IDLE_MS + SECOND_MS)
    assert rejection(world, sent(third, 0)) == Rejection.NONE
    assert known(world) == [ids.producer_id, third]


def test_the_fuller_the_table_of_all_producers_the_sooner_ticks_remove_idle_ones() -> None:
    world = new_world(producers_max=8, producers_pressure_min=4)
    producers = [world.producer() for _ in range(9)]
    for producer in producers[:8]:
        world.produce(sent(producer, 0), partition=producer % 2)
    assert rejection(world, sent(producers[8], 0)) == Rejection.PRODUCERS_FULL
    pass_time(world, IDLE_MS + MINUTE_MS)
    assert world.state.producer_count < 8
    assert rejection(world, sent(producers[8], 0)) == Rejection.NONE


def test_a_table_that_is_not_full_keeps_idle_producers_for_a_day() -> None:
    world = new_world(producers_max=8, producers_pressure_min=7)
    for _ in range(6):
        world.produce(sent(world.producer(), 0))
    pass_time(world, 23 * HOUR_MS)
    assert world.state.producer_count == 6


def test_a_snapshot_keeps_what_protects_from_late_copies() -> None:
    world, (first, _, third) = full_world()
    pass_time(world, IDLE_MS + SECOND_MS)
    world.produce(sent(third, 0))
    restored = decode_state(encode_state(world.state), world.state.limits)
    assert encode_state(restored) == encode_state(world.state)
    partition = restored.topics["t"].partitions[0]
    assert partition.evicted_ms == world.now_ms
    assert partition.evicted_id_max == world.partition().evicted_id_max >= first
    assert partition.first_new_producer_id == 1
    assert producer_ms(restored) == producer_ms(world.state)


# Topics that were deleted and made again.


def recreate(world: World, number: int) -> None:
    world.do(DeleteTopic(world.now_ms, "t", topic_id(number - 1)))
    world.topic("t", 2, number)


def test_a_producer_goes_on_in_a_topic_that_was_deleted_and_made_again() -> None:
    world = new_world()
    producer = world.producer()
    world.produce(sent(producer, 0))
    recreate(world, 2)
    assert rejection(world, sent(producer, 1), number=2) == Rejection.NONE
    assert rejection(world, sent(producer, 2), number=2) == Rejection.NONE
    assert [result.base_offset for result in world.produce(sent(producer, 1), number=2)] == [0]
    assert rejection(world, sent(producer, 0), number=2) == Rejection.OUT_OF_ORDER_SEQUENCE
    assert rejection(world, sent(producer, 4), number=2) == Rejection.OUT_OF_ORDER_SEQUENCE


def test_a_producer_that_is_younger_than_the_partition_begins_at_sequence_zero() -> None:
    world = new_world()
    recreate(world, 2)
    producer = world.producer()
    assert rejection(world, sent(producer, 1), number=2) == Rejection.OUT_OF_ORDER_SEQUENCE
    assert rejection(world, sent(producer, 0), number=2) == Rejection.NONE


@pytest.mark.parametrize(("adds", "error"), [(False, Rejection.NONE), (True, Rejection.OUT_OF_ORDER_SEQUENCE)])
def test_a_transaction_goes_on_in_the_old_protocol_and_begins_at_zero_in_the_new_one(
    adds: bool, error: Rejection
) -> None:
    world = World(level=PRODUCERS_LEVEL)
    world.topic()
    writer = world.transactions.init()
    recreate(world, 2)
    if not adds:
        world.transactions.add(writer, 0, number=2)
    assert rejection(world, world.transactions.of(writer, 3, adds=adds), number=2) == error


# Transactional ids.


def transactional_world(**limits: int) -> World:
    return World(Limits(transactions=TransactionLimits(**limits)), PRODUCERS_LEVEL)


def init(world: World, name: str) -> Rejection:
    outcome = world.do(InitTransactionalProducer(world.now_ms, name, MINUTE_MS))
    return outcome.rejection if isinstance(outcome, Rejected) else Rejection.NONE


def test_a_full_table_of_transactional_ids_evicts_the_idlest() -> None:
    world = transactional_world(transactions_max=2)
    assert [init(world, "a"), init(world, "b"), init(world, "c")] == [0, 0, Rejection.OVERLOADED]
    pass_time(world, DEFAULT_LIMITS.transactions.transactional_id_idle_min_ms)
    assert init(world, "a") == init(world, "c") == Rejection.NONE
    assert list(world.state.transactions) == ["a", "c"]


def test_ticks_evict_idle_transactional_ids_before_the_table_is_full() -> None:
    world = transactional_world(transactions_max=4, transactions_pressure_min=3)
    init(world, "a"), init(world, "b")
    pass_time(world, HOUR_MS)
    assert list(world.state.transactions) == ["a", "b"]
    init(world, "c")
    pass_time(world, SECOND_MS)
    assert list(world.state.transactions) == ["c"]


def test_a_clock_that_leaps_by_weeks_removes_no_transactional_id() -> None:
    world = transactional_world()
    init(world, "a")
    leap(world, 30 * DAY_MS)
    assert list(world.state.transactions) == ["a"]


# All of it together.

LEAP_COUNTS_MS = 500
REPEATS_MS = 5_000
SMALL = Limits(
    log=LogLimits(segment_commit_age_max_ms=15_000, segment_ahead_max_ms=0),
    offsets=OffsetLimits(leap_max_ms=LEAP_COUNTS_MS),
    producers=ProducerLimits(producers_per_partition_max=3, producers_max=4, producer_idle_min_ms=6_000),
)


class Client:
    """An idempotent client: it repeats a batch for 5 s, and begins another epoch when it gives up."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = self.sequence = 0
        self.since_ms: int | None = None  # when it sent the present batch first

    def next_batch(self, uptime_ms: int) -> BatchMeta:
        if self.since_ms is not None and uptime_ms - self.since_ms > REPEATS_MS:
            self.begin_epoch()
        if self.since_ms is None:
            self.since_ms = uptime_ms
        return sent(self.producer_id, self.sequence, self.epoch)

    def take(self, error: int) -> None:
        if not error:
            self.sequence += 1
            self.since_ms = None
        elif error == Rejection.UNKNOWN_PRODUCER:
            self.begin_epoch()

    def begin_epoch(self) -> None:
        self.epoch, self.sequence, self.since_ms = self.epoch + 1, 0, None


steps = st.tuples(
    st.integers(0, 5),  # client, or copy
    st.sampled_from(["answered", "not answered", "late copy"]),
    st.sampled_from([0, 500, 2_000, 7_000]),  # time that passes before
    st.booleans(),  # whether the clock leaps by a day
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=60))
def test_no_batch_appears_twice_in_a_small_table(plan: list[tuple[int, str, int, bool]]) -> None:
    """Clients repeat for 5 s, and flushers commit for 15 s, while producers are evicted after 6 s."""
    world = World(SMALL, PRODUCERS_LEVEL)
    world.topic()
    clients = [Client(world.producer()) for _ in range(6)]
    copies: list[tuple[BatchMeta, int]] = []
    stored: list[tuple[int, int, int]] = []
    uptime_ms = 0
    for which, kind, passes_ms, leaps in plan:
        pass_time(world, passes_ms)
        uptime_ms += passes_ms + LEAP_COUNTS_MS * leaps
        if leaps:
            leap(world, DAY_MS)
        client = clients[which]
        if kind == "late copy" and copies:
            meta, born_ms = copies[which % len(copies)]
        else:
            meta, born_ms = client.next_batch(uptime_ms), world.now_ms
            copies.append((meta, born_ms))
        before = world.partition().high_watermark
        outcome = world.do(world.segment_command((1, 0, [meta]), born_ms=born_ms))
        if world.partition().high_watermark > before:
            stored.append((meta.producer_id, meta.producer_epoch, meta.base_sequence))
        if kind == "answered" and not isinstance(outcome, Rejected):
            client.take(outcome.runs[0][0].rejection)
    assert len(stored) == len(dict.fromkeys(stored))


def test_a_clock_that_leaps_back_changes_nothing() -> None:
    """Neither the machine's clock nor that of producers goes back."""
    world = new_world()
    producer = world.producer()
    world.produce(sent(producer, 0))
    before_ms = producer_ms(world.state)
    world.do(Tick(world.now_ms - 30 * DAY_MS))
    assert producer_ms(world.state) == before_ms
    assert rejection(world, sent(producer, 1)) == Rejection.NONE
