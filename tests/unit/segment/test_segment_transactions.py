"""Transactions in segments: control batches of markers, and the lookup of aborted batches and first offsets."""

from hypothesis import given, strategies as st

from penstock.contracts.batches import MARKER_BYTES, AbortedTransaction, Marker
from penstock.kafkawire.control import EndOfTransaction, read_control_batch
from penstock.kafkawire.records import read_batch_header
from penstock.segment.transactions import Aborted, marker_batch


def test_a_batch_was_aborted_if_it_lies_in_an_aborted_transaction_of_its_producer() -> None:
    aborted = Aborted([AbortedTransaction(1, 10, 20), AbortedTransaction(2, 5, 30), AbortedTransaction(1, 40, 50)])
    assert [offset for offset in range(60) if aborted.has(1, offset)] == [*range(10, 21), *range(40, 51)]
    assert [offset for offset in range(60) if aborted.has(2, offset)] == list(range(5, 31))
    assert not any(aborted.has(3, offset) for offset in range(60))


def test_a_marker_leads_to_the_first_offset_of_its_transaction() -> None:
    aborted = Aborted([AbortedTransaction(1, 10, 20), AbortedTransaction(1, 40, 50)])
    assert [aborted.begin_of(1, offset) for offset in (20, 50)] == [10, 40]
    assert [aborted.begin_of(*place) for place in ((1, 19), (1, 21), (2, 20), (1, 51))] == [None] * 4


def test_a_duplicate_transaction_changes_nothing() -> None:
    one = AbortedTransaction(1, 10, 20)
    assert Aborted([one, one]).begin_of(1, 20) == 10
    assert Aborted([one, one]).has(1, 12)
    assert Aborted([one]) and not Aborted([])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 4)), max_size=20), st.randoms())
def test_any_sequence_of_aborted_transactions_is_found(steps: list[tuple[int, int, int]], shuffled: object) -> None:
    """The results equal those of a list of all offsets, for any order of the transactions."""
    transactions, owner = [], {}
    end = 0
    for producer_id, gap, length in steps:
        first, end = end + gap, end + gap + length
        transactions.append(AbortedTransaction(producer_id, first, end))
        owner.update(dict.fromkeys(range(first, end + 1), producer_id))
    shuffled.shuffle(transactions)  # type: ignore[attr-defined]
    aborted = Aborted(transactions)
    for offset in range(end + 2):
        assert [each for each in range(3) if aborted.has(each, offset)] == ([owner[offset]] if offset in owner else [])


def test_a_control_batch_has_the_fields_of_its_marker() -> None:
    """All fields are in their positions: producer, epochs, outcome, time and offset."""
    batch = marker_batch(Marker(100, 7, 3, False, 9, 1_700_000_000_000, 90), leader_epoch=5)
    header = read_batch_header(batch)
    assert len(batch) == MARKER_BYTES
    assert (header.base_offset, header.partition_leader_epoch, header.max_timestamp) == (100, 5, 1_700_000_000_000)
    assert (header.producer_id, header.producer_epoch) == (7, 3)
    assert read_control_batch(batch) == EndOfTransaction(committed=False, coordinator_epoch=9)
    assert read_control_batch(marker_batch(Marker(100, 7, 3, True, 9, 0, 90))) == EndOfTransaction(True, 9)
