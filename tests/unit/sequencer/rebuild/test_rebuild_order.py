"""Lost commits get an order that fits every producer's sequences and every flusher's segments."""

from collections.abc import Callable

from hypothesis import given, settings, strategies as st

from penstock.contracts.ids import segment_born_ms
from penstock.segment import SegmentIndex
from penstock_sequencer.core.state.limits import SEQUENCE_MAX
from penstock_sequencer.rebuild.order import Leap, Place, Placed, ProducerKey, in_order, is_behind
from tests.unit.sequencer.rebuild.rebuild_segments import TOPIC, batch, segment

KEY = (TOPIC, 0, 7)


def nothing_known(key: ProducerKey) -> Place | None:
    return None


def at(epoch: int, next_sequence: int) -> Callable[[ProducerKey], Place | None]:
    return lambda key: Place(epoch, next_sequence)


def order_of(
    segments: list[SegmentIndex], known: Callable[[ProducerKey], Place | None] = nothing_known
) -> list[Placed]:
    placed = list(in_order(segments, known))
    assert sorted(each.index.segment_id for each in placed) == sorted(each.segment_id for each in segments)
    return placed


def names(placed: list[Placed]) -> list[tuple[str, int]]:
    return [(each.index.writer, segment_born_ms(each.index.segment_id) % 1000) for each in placed]


def test_without_producers_the_births_decide() -> None:
    segments = [segment("a", 30, batch()), segment("b", 20, batch()), segment("a", 10, batch())]
    assert names(order_of(segments)) == [("a", 10), ("b", 20), ("a", 30)]


def test_a_producer_that_moved_to_a_flusher_whose_clock_is_behind_keeps_its_sequences() -> None:
    segments = [segment("a", 500, batch(7, sequence=0)), segment("b", 100, batch(7, sequence=1))]
    assert names(order_of(segments)) == [("a", 500), ("b", 100)]


def test_a_producer_that_changed_flushers_twice_keeps_its_sequences() -> None:
    segments = [
        segment("a", 500, batch(7, sequence=0)),
        segment("b", 100, batch(7, sequence=1)),
        segment("b", 110, batch(7, sequence=2)),
        segment("a", 510, batch(7, sequence=3)),
        segment("b", 120, batch(7, sequence=4)),
    ]
    assert names(order_of(segments)) == [("a", 500), ("b", 100), ("b", 110), ("a", 510), ("b", 120)]


def test_segments_of_one_flusher_and_millisecond_are_ordered_by_their_sequences() -> None:
    later, earlier = segment("a", 10, batch(7, sequence=1)), segment("a", 10, batch(7, sequence=0), chance=1)
    assert [each.index for each in order_of([later, earlier])] == [earlier, later]


def test_a_newer_epoch_waits_for_the_rest_of_the_older_one() -> None:
    segments = [segment("a", 10, batch(7, 1, 0)), segment("b", 20, batch(7, 0, 5)), segment("b", 30, batch(7, 0, 6))]
    assert names(order_of(segments, at(0, 5))) == [("b", 20), ("b", 30), ("a", 10)]


def test_the_state_has_each_producers_position_also_where_sequences_wrap_to_zero() -> None:
    segments = [segment("a", 10, batch(7, sequence=1)), segment("b", 20, batch(7, sequence=SEQUENCE_MAX, records=2))]
    assert names(order_of(segments, at(0, SEQUENCE_MAX))) == [("b", 20), ("a", 10)]
    assert all(not each.leaps for each in order_of(segments, at(0, SEQUENCE_MAX)))


def test_a_batch_sent_again_waits_for_no_other() -> None:
    segments = [segment("a", 10, batch(7, sequence=3)), segment("b", 20, batch(7, sequence=9))]
    assert names(order_of(segments, at(0, 9))) == [("a", 10), ("b", 20)]


def test_a_batch_whose_predecessor_is_lost_gets_a_leap() -> None:
    placed = order_of([segment("a", 10, batch(7, sequence=4)), segment("a", 20, batch(7, sequence=5))], at(0, 2))
    assert [each.leaps for each in placed] == [[Leap(KEY, Place(0, 4))], []]


def test_a_batch_that_the_producer_sent_again_later_needs_no_leap() -> None:
    segments = [segment("a", 10, batch(7, sequence=4)), segment("a", 20, batch(7, sequence=3), batch(7, sequence=4))]
    assert [each.leaps for each in order_of(segments, at(0, 3))] == [[], []]


def test_an_older_epoch_never_gets_a_leap() -> None:
    assert [each.leaps for each in order_of([segment("a", 10, batch(7, 0, 50))], at(1, 2))] == [[]]


def test_two_segments_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    segments = [
        segment("a", 10, batch(7, sequence=1), batch(8, sequence=0)),
        segment("b", 20, batch(8, sequence=1), batch(7, sequence=0)),
    ]
    assert names(order_of(segments)) == [("a", 10), ("b", 20)]


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX // 2))
def test_a_batch_that_is_behind_stays_behind_where_sequences_wrap(due: int, distance: int) -> None:
    assert not is_behind((due + distance) & SEQUENCE_MAX, due)
    assert is_behind((due - 1 - distance) & SEQUENCE_MAX, due)


@st.composite
def commit_orders(draw: st.DrawFn) -> list[SegmentIndex]:
    """Segments as flushers with separate clocks committed them, in the order of the commits."""
    clocks = {writer: draw(st.integers(0, 300)) for writer in ("a", "b", "c")}
    sequences: dict[tuple[int, int], int] = {}
    committed = []
    for count in range(draw(st.integers(1, 12))):
        writer = draw(st.sampled_from(sorted(clocks)))
        clocks[writer] += draw(st.integers(0, 3))
        runs = []
        for partition in sorted(draw(st.sets(st.integers(0, 1), min_size=1))):
            metas = []
            for producer in draw(st.lists(st.integers(6, 8), min_size=1, max_size=3)):
                sequence = sequences.setdefault((partition, producer), 0)
                records = draw(st.integers(1, 3))
                sequences[partition, producer] = sequence + records
                metas.append(batch(producer, 0, sequence, records))
            runs.append((TOPIC, partition, metas))
        chance = draw(st.integers(0, 200)) * 256 + count
        committed.append(segment(writer, clocks[writer], chance=chance, runs=runs))
    return committed


@settings(max_examples=300)
@given(commit_orders(), st.randoms(use_true_random=False))
def test_every_producers_sequences_and_every_flushers_order_are_kept(committed: list[SegmentIndex], chance) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(committed)
    chance.shuffle(shuffled)
    placed = order_of(shuffled)
    assert not any(each.leaps for each in placed)
    due: dict[tuple[int, int], int] = {}
    born: dict[str, int] = {}
    for each in placed:
        assert born.get(each.index.writer, 0) <= segment_born_ms(each.index.segment_id)
        born[each.index.writer] = segment_born_ms(each.index.segment_id)
        for run in each.index.runs:
            for meta in run.batches:
                assert meta.base_sequence == due.get((run.partition, meta.producer_id), 0)
                due[run.partition, meta.producer_id] = meta.base_sequence + meta.record_count
