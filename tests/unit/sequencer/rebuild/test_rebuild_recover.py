"""Segments whose commits are lost are recovered: complete, once, and with all state that their producers need."""

import copy
from typing import Any

from hypothesis import given, settings, strategies as st

from penstock.contracts.commands import DeleteTopic, SegmentCommitted
from penstock.contracts.rejections import Rejection
from penstock.segment import SegmentIndex
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from penstock_sequencer.rebuild.recover import PRODUCER_IDS_SKIPPED
from penstock_sequencer.rebuild.report import adopted_name
from tests.unit.sequencer.core.core_world import World, topic_id
from tests.unit.sequencer.rebuild.rebuild_lost import T1, commit_of, of, partition, recover
from tests.unit.sequencer.rebuild.rebuild_segments import BORN_MS, Run, batch, segment

T2 = topic_id(2)


def world(partitions: int = 1) -> World:
    made = World()
    made.now_ms = BORN_MS
    made.topic("t", partitions=partitions, number=1)
    return made


def test_records_are_recovered_in_the_order_of_their_segments() -> None:
    built = world()
    report = recover(built, of("a", 20, batch(records=3)), of("a", 10, batch(records=2), batch()))
    extents = partition(built).extents
    assert (list(extents.base_offsets), list(extents.last_offsets)) == ([0, 3], [2, 5])
    assert (report.recovered_records, report.recovered_batches, len(report.recovered_segments)) == (6, 3, 2)
    assert list(extents.positions) == [of("a", 0).runs[0].position] * 2


def test_a_batch_sent_twice_is_recovered_once() -> None:
    built = world()
    producer = built.producer()
    sent = [of("a", 10, batch(producer, sequence=0, records=5)), of("b", 20, batch(producer, sequence=0, records=5))]
    report = recover(built, *sent, of("b", 30, batch(producer, sequence=5)))
    assert partition(built).high_watermark == 6
    assert (report.recovered_batches, report.repeated_batches, report.refused_batches) == (2, 1, {})


def test_an_old_duplicate_that_the_state_no_longer_knows_is_no_loss() -> None:
    built = world()
    producer = built.producer()
    built.produce(*(batch(producer, sequence=each) for each in range(9)))
    report = recover(built, of("b", 20, batch(producer, sequence=0)))
    assert (report.repeated_batches, report.refused_batches) == (1, {})


def test_a_producer_continues_after_the_rebuild_with_its_next_sequence() -> None:
    built = world()
    producer = built.producer()
    built.produce(batch(producer, sequence=0, records=5))
    recover(built, of("a", 10, batch(producer, sequence=5, records=5)))
    (again,) = built.produce(batch(producer, sequence=5, records=5))
    (following,) = built.produce(batch(producer, sequence=10))
    assert (again.rejection, again.base_offset, following.rejection, following.base_offset) == (0, 5, 0, 10)


def test_a_flusher_that_commits_again_gets_the_result_of_its_segment() -> None:
    built = world()
    index = of("a", 10, batch(records=4))
    recover(built, index)
    outcome = commit_of(built, index)
    assert isinstance(outcome, SegmentCommitted)
    assert outcome.runs[0][0].base_offset == 0
    assert partition(built).high_watermark == 4


def test_producer_ids_whose_allocation_is_lost_are_valid_and_never_used_again() -> None:
    built = world()
    lost = built.state.next_producer_id + 40
    report = recover(built, of("a", 10, batch(lost, sequence=0)), of("a", 20, batch(lost, sequence=1)))
    assert partition(built).high_watermark == 2
    assert built.producer() == lost + 1 + PRODUCER_IDS_SKIPPED == report.next_producer_id


def test_an_invented_producer_id_does_not_use_up_all_ids() -> None:
    built = world()
    before = built.state.next_producer_id
    made_up = [batch(2**63 - 1, sequence=0), batch(2**63 - 2, sequence=7)]
    report = recover(built, of("a", 10, *made_up), of("a", 20, batch(before + 5, sequence=0)))
    assert (partition(built).high_watermark, report.leaps, sum(report.refused_batches.values())) == (1, 0, 2)
    assert built.producer() == before + 5 + 1 + PRODUCER_IDS_SKIPPED


def test_the_clock_does_not_go_beyond_now_for_a_segment_that_is_born_a_little_later() -> None:
    built = world()
    report = recover(built, of("a", 60_000, batch(records=2)), now_ms=BORN_MS + 1000)
    assert (partition(built).high_watermark, report.refused_segments) == (2, {})
    assert built.state.clock_ms == BORN_MS + 1000


def test_ids_are_skipped_even_if_no_batch_has_them() -> None:
    built = world()
    before = built.state.next_producer_id
    recover(built)
    assert built.producer() == before + PRODUCER_IDS_SKIPPED


def test_a_batch_without_its_predecessor_is_recovered_and_its_producer_continues() -> None:
    built = world()
    producer = built.producer()
    built.produce(batch(producer, sequence=0))
    report = recover(built, of("a", 10, batch(producer, sequence=7)), of("a", 20, batch(producer, sequence=8)))
    assert (partition(built).high_watermark, report.leaps, report.refused_batches) == (3, 1, {})
    assert [each.rejection for each in built.produce(batch(producer, sequence=9))] == [0]


def test_an_unknown_producer_is_recovered_at_its_position() -> None:
    built = world()
    producer = built.producer()
    report = recover(built, of("a", 10, batch(producer, sequence=40)), of("a", 20, batch(producer, sequence=41)))
    assert (partition(built).high_watermark, report.leaps) == (2, 1)


def test_a_batch_that_was_rejected_and_sent_again_is_recovered_where_it_was_sent_again() -> None:
    built = world()
    producer = built.producer()
    first, second = batch(producer, sequence=0), batch(producer, sequence=1)
    report = recover(built, of("a", 10, second), of("a", 20, first, second))
    assert (partition(built).high_watermark, report.leaps) == (2, 0)
    assert (report.refused_batches, report.repeated_batches) == ({"out_of_order_sequence": 1}, 0)


def test_an_older_epoch_is_rejected_and_reported() -> None:
    built = world()
    producer = built.producer()
    built.produce(batch(producer, epoch=3, sequence=0))
    report = recover(built, of("a", 10, batch(producer, epoch=2, sequence=0)))
    assert report.refused_batches == {Rejection.PRODUCER_FENCED.name.lower(): 1}


def test_partitions_that_lost_entries_added_are_made_again() -> None:
    built = world(partitions=2)
    runs: list[Run] = [(T1, 1, [batch()]), (T1, 4, [batch(records=2)])]
    report = recover(built, segment("a", 10, runs=runs))
    assert report.grown_topics == {"t": 5}
    assert [each.high_watermark for each in built.state.topics["t"].partitions] == [0, 1, 0, 0, 2]


def test_records_of_a_topic_whose_name_is_lost_get_a_topic_named_by_its_id() -> None:
    built = world()
    runs: list[Run] = [(T2, 0, [batch(records=2)]), (T2, 3, [batch(records=5)])]
    report = recover(built, segment("a", 10, runs=runs))
    assert report.adopted_topics == {adopted_name(T2): 7}
    assert built.state.topics[adopted_name(T2)].topic_id == T2
    assert partition(built, 3, adopted_name(T2)).high_watermark == 5


def test_records_of_a_deleted_topic_stay_deleted() -> None:
    built = world()
    built.topic("gone", number=2)
    built.do(DeleteTopic(built.now_ms, "gone", T2))
    report = recover(built, of("a", 10, batch(), topic=T2))
    assert (report.deleted_topic_batches, report.refused_batches, report.adopted_topics) == (1, {}, {})
    assert list(built.state.topics) == ["t"]


def test_segments_are_recovered_even_if_the_lost_time_is_long() -> None:
    built = world()
    step_ms = DEFAULT_LIMITS.log.segment_commit_age_max_ms
    report = recover(built, *(of("a", step * step_ms, batch()) for step in range(5)))
    assert (partition(built).high_watermark, report.refused_segments) == (5, {})


def test_flushers_keep_the_zone_that_the_state_knows_them_by() -> None:
    built = world()
    built.do(built.segment_command((1, 0, [batch()]), zone="z7"))
    recover(built, of("flusher-1", 10, batch()), of("stranger", 20, batch()))
    rows = partition(built).extents.segments
    assert [built.state.segments.ref(row).zone for row in rows] == ["z7", "z7", ""]


@st.composite
def journals(draw: st.DrawFn) -> tuple[int, list[SegmentIndex]]:
    """Segments of two flushers in the order of their commits, and the number of commits in the archive."""
    sequences: dict[int, int] = {}
    clocks = {"a": 0, "b": draw(st.integers(0, 50))}
    indexes = []
    for count in range(draw(st.integers(1, 15))):
        writer = draw(st.sampled_from(["a", "b"]))
        clocks[writer] += draw(st.integers(0, 20))
        metas = []
        for producer in draw(st.lists(st.sampled_from([-1, 1, 2]), min_size=1, max_size=3)):
            records = draw(st.integers(1, 3))
            metas.append(batch(producer, 0, sequences.get(producer, 0), records))
            sequences[producer] = sequences.get(producer, 0) + records
        indexes.append(segment(writer, clocks[writer], chance=256 * count, runs=[(T1, 0, metas)]))
    return draw(st.integers(0, len(indexes))), indexes


@settings(max_examples=100)
@given(journals(), st.randoms(use_true_random=False))
def test_after_any_loss_every_record_exists_once_and_each_producers_in_order(
    journal: tuple[int, list[SegmentIndex]],
    chance: Any,
) -> None:
    kept, indexes = journal
    whole = world()
    assert [whole.producer(), whole.producer()] == [1, 2]
    lost = copy.deepcopy(whole)
    for index in indexes:
        assert isinstance(commit_of(whole, index), SegmentCommitted)
    for index in indexes[:kept]:
        commit_of(lost, index)
    rest = indexes[kept:]
    chance.shuffle(rest)
    report = recover(lost, *rest)
    assert partition(lost).high_watermark == partition(whole).high_watermark
    assert (report.refused_batches, report.leaps, report.repeated_batches) == ({}, 0, 0)
    for producer_id, producer in partition(whole).producers.items():
        assert partition(lost).producers[producer_id].last_sequence == producer.last_sequence
    for index in indexes:
        assert isinstance(commit_of(lost, index), SegmentCommitted)
    assert partition(lost).high_watermark == partition(whole).high_watermark


@settings(max_examples=50)
@given(journals())
def test_with_one_flusher_every_record_is_at_its_old_offset(journal: tuple[int, list[SegmentIndex]]) -> None:
    kept, indexes = journal
    alone = [segment("a", 50 * place, runs=[(T1, 0, each.runs[0].batches)]) for place, each in enumerate(indexes)]
    whole = world()
    assert [whole.producer(), whole.producer()] == [1, 2]
    lost = copy.deepcopy(whole)
    for index in alone:
        commit_of(whole, index)
    for index in alone[:kept]:
        commit_of(lost, index)
    recover(lost, *alone[kept:])
    ours, theirs = partition(lost).extents, partition(whole).extents
    assert ours.columns() == theirs.columns()
    assert [lost.state.segments.id(row) for row in ours.segments] == [
        whole.state.segments.id(row) for row in theirs.segments
    ]
