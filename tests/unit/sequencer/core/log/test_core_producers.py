"""Idempotent producers: a retry never appears twice, gaps and old epochs are rejected, idle producers are removed."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.batches import BatchMeta, BatchResult
from penstock.contracts.commands import DeleteTopic
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, HOUR_MS, SEQUENCE_MAX, Limits, ProducerLimits
from tests.unit.sequencer.core.core_world import World, batch, topic_id


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(partitions=2)
    return world


def sent(producer: int, sequence: int, records: int = 1, epoch: int = 0) -> BatchMeta:
    return batch(records, producer=producer, epoch=epoch, sequence=sequence)


def rejection_of(world: World, meta: BatchMeta, partition: int = 0) -> Rejection:
    return Rejection(world.produce(meta, partition=partition)[0].rejection)


def test_producer_ids_are_never_assigned_twice(world: World) -> None:
    assert [world.producer() for _ in range(3)] == [1, 2, 3]


def test_a_duplicate_among_the_last_five_gets_its_first_offset_and_appears_once(world: World) -> None:
    producer = world.producer()
    batches = [sent(producer, 2 * number, records=2) for number in range(5)]
    offsets = [result.base_offset for result in world.produce(*batches)]
    assert offsets == [0, 2, 4, 6, 8]
    assert [result.base_offset for result in world.produce(*batches)] == offsets
    assert world.state.topics["t"].partitions[0].high_watermark == 10


def test_the_sixth_last_batch_is_not_recognised_as_a_duplicate(world: World) -> None:
    producer = world.producer()
    world.produce(*[sent(producer, number) for number in range(6)])
    assert rejection_of(world, sent(producer, 0)) == Rejection.OUT_OF_ORDER_SEQUENCE
    assert rejection_of(world, sent(producer, 1)) == Rejection.NONE


def test_a_batch_that_only_begins_like_a_known_batch_is_out_of_order(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0, records=3))
    assert rejection_of(world, sent(producer, 0, records=2)) == Rejection.OUT_OF_ORDER_SEQUENCE


def test_a_duplicate_within_one_commit_is_found(world: World) -> None:
    producer = world.producer()
    first, again = world.produce(sent(producer, 0), sent(producer, 0))
    assert first == again == BatchResult(0, 0, 0)
    assert world.state.topics["t"].partitions[0].high_watermark == 1


def test_a_gap_rejects_the_batch_and_all_later_ones_until_it_is_filled(world: World) -> None:
    producer = world.producer()
    rejections = [result.rejection for result in world.produce(sent(producer, 0), sent(producer, 2), sent(producer, 3))]
    assert rejections == [0, Rejection.OUT_OF_ORDER_SEQUENCE, Rejection.OUT_OF_ORDER_SEQUENCE]
    assert [result.rejection for result in world.produce(*[sent(producer, number) for number in (1, 2, 3)])] == [
        0,
        0,
        0,
    ]


def test_sequences_wrap_from_the_highest_to_zero(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0, records=SEQUENCE_MAX))
    result = world.produce(sent(producer, SEQUENCE_MAX, records=3), sent(producer, 2))
    assert [each.rejection for each in result] == [0, 0]
    assert world.produce(sent(producer, SEQUENCE_MAX, records=3)) == [BatchResult(0, SEQUENCE_MAX, 0)]


def test_sequence_zero_comes_right_after_the_highest_sequence(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0, records=SEQUENCE_MAX), sent(producer, SEQUENCE_MAX))
    assert rejection_of(world, sent(producer, 0, records=7)) == Rejection.NONE


def test_an_older_epoch_is_fenced(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0, epoch=3))
    assert rejection_of(world, sent(producer, 1, epoch=2)) == Rejection.PRODUCER_FENCED


def test_a_newer_epoch_starts_at_sequence_zero_only(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0), sent(producer, 1))
    assert rejection_of(world, sent(producer, 2, epoch=1)) == Rejection.OUT_OF_ORDER_SEQUENCE
    assert rejection_of(world, sent(producer, 0, epoch=1)) == Rejection.NONE
    assert rejection_of(world, sent(producer, 0, epoch=0)) == Rejection.PRODUCER_FENCED


def test_each_partition_has_its_own_sequences(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0))
    assert rejection_of(world, sent(producer, 1), partition=1) == Rejection.OUT_OF_ORDER_SEQUENCE
    assert rejection_of(world, sent(producer, 0), partition=1) == Rejection.NONE


def test_an_id_that_was_never_assigned_is_unknown(world: World) -> None:
    assert rejection_of(world, sent(1, 0)) == Rejection.UNKNOWN_PRODUCER
    assert rejection_of(world, sent(0, 0)) == Rejection.UNKNOWN_PRODUCER


@pytest.mark.parametrize(("sequence", "epoch"), [(-1, 0), (0, -1), (2**31, 0), (0, 2**15)])
def test_an_impossible_sequence_or_epoch_is_an_invalid_request(world: World, sequence: int, epoch: int) -> None:
    assert rejection_of(world, sent(world.producer(), sequence, epoch=epoch)) == Rejection.INVALID_REQUEST


def test_a_known_producer_with_an_impossible_sequence_is_out_of_order(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0))
    for sequence in (-1, 2**31, 2**31 + 1):
        assert rejection_of(world, sent(producer, sequence)) == Rejection.OUT_OF_ORDER_SEQUENCE


def test_a_producer_is_removed_after_an_idle_day_and_not_before(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0))
    world.wait(DEFAULT_LIMITS.producers.producer_expiry_ms)
    assert world.produce(sent(producer, 0)) == [BatchResult(0, 0, 0)]
    world.wait(1)
    assert world.state.producer_count == 0
    assert len(world.state.producer_sweep) == 0


def test_a_new_id_in_the_middle_of_its_sequence_is_out_of_order_and_an_old_id_is_unknown(world: World) -> None:
    old = world.producer()
    world.wait(DEFAULT_LIMITS.producers.producer_expiry_ms + HOUR_MS)
    young = world.producer()
    assert rejection_of(world, sent(old, 5)) == Rejection.UNKNOWN_PRODUCER
    assert rejection_of(world, sent(young, 5)) == Rejection.OUT_OF_ORDER_SEQUENCE
    assert rejection_of(world, sent(old, 0)) == Rejection.NONE


def test_one_tick_sweeps_a_bounded_number_and_the_next_tick_continues(world: World) -> None:
    world.use_limits(Limits(producers=ProducerLimits(producers_swept_per_tick=2)))
    producer = world.producer()
    world.topic("u", 3, 2)
    for partition in range(3):
        world.produce(sent(producer, 0), partition=partition, number=2)
    world.wait(DEFAULT_LIMITS.producers.producer_expiry_ms + 1)
    assert world.state.producer_count == 2
    world.wait(1)
    world.wait(1)
    assert world.state.producer_count == 0


def test_a_full_partition_takes_a_new_producer_only_in_place_of_one_idle_for_long(world: World) -> None:
    world.use_limits(Limits(producers=ProducerLimits(producers_per_partition_max=2)))
    first, second, third = world.producer(), world.producer(), world.producer()
    world.produce(sent(first, 0))
    world.wait(DEFAULT_LIMITS.producers.producer_idle_min_ms)
    world.produce(sent(second, 0))
    assert rejection_of(world, sent(third, 0)) == Rejection.OVERLOADED
    world.wait(1)
    assert rejection_of(world, sent(third, 0)) == Rejection.NONE
    assert list(world.state.topics["t"].partitions[0].producers) == [second, third]


def test_producers_of_a_deleted_topic_are_removed(world: World) -> None:
    producer = world.producer()
    world.produce(sent(producer, 0))
    world.do(DeleteTopic(world.now_ms, "t", topic_id(1)))
    assert world.state.producer_count == 0
    world.wait(1)
    assert len(world.state.producer_sweep) == 0


class ModelProducer:
    """Kafka's promises on a plain list: every batch accepted so far, in order, with its offset."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, int, int, int]] = []  # epoch, first, records, offset

    def expect(self, epoch: int, first: int, records: int, offset: int) -> BatchResult:
        if self.accepted:
            newest = self.accepted[-1]
            if epoch < newest[0]:
                return BatchResult(Rejection.PRODUCER_FENCED)
            same = [each for each in self.accepted if each[0] == epoch]
            for each in same[-5:]:
                if each[1:3] == (first, records):
                    return BatchResult(0, each[3], 0)
            next_sequence = (same[-1][1] + same[-1][2]) % 2**31 if same else 0
        else:
            next_sequence = 0
        if first != next_sequence:
            return BatchResult(Rejection.OUT_OF_ORDER_SEQUENCE)
        self.accepted.append((epoch, first, records, offset))
        return BatchResult(0, offset, 0)


steps = st.tuples(
    st.integers(0, 1),  # producer
    st.sampled_from(["next", "retry", "gap", "bump", "stale"]),
    st.integers(1, 3) | st.just(2**28),  # records; eight of the large batches wrap the sequence, five do not
    st.integers(1, 7),  # how far back a retry goes
    st.booleans(),  # whether a new segment begins
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
def test_any_interleaving_of_retries_gaps_and_epochs_agrees_with_a_plain_list(plan: list[Any]) -> None:
    world = World()
    world.topic()
    ids = [world.producer(), world.producer()]
    models = [ModelProducer(), ModelProducer()]
    offset = 0
    pending: list[BatchMeta] = []
    expected: list[BatchResult] = []
    for which, kind, records, back, cut in plan:
        epoch, first, records = next_step(models[which].accepted, kind, records, back)
        answer = models[which].expect(epoch, first, records, offset)
        if answer == BatchResult(0, offset, 0):
            offset += records
        pending.append(sent(ids[which], first, records, epoch))
        expected.append(answer)
        if cut:
            assert world.produce(*pending) == expected
            pending, expected = [], []
    assert world.produce(*pending) == expected
    assert world.state.topics["t"].partitions[0].high_watermark == offset


def next_step(accepted: list[tuple[int, int, int, int]], kind: str, records: int, back: int) -> tuple[int, int, int]:
    """(epoch, first sequence, records) of the next batch of a client."""
    if not accepted:
        return 0, 1 if kind == "gap" else 0, records
    epoch, first, count, _ = accepted[-1]
    follow = (first + count) % 2**31
    if kind == "retry":
        return accepted[-min(back, len(accepted))][:3]
    if kind == "gap":
        return epoch, (follow + back) % 2**31, records
    if kind == "bump":
        return epoch + 1, back - 1, records
    return (epoch - 1 if kind == "stale" and epoch else epoch), follow, records
