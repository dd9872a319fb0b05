"""The mark that ends a moved journal: its bytes, and the readers of it."""

import pytest

from penstock.contracts.entries import (
    Entry,
    JournalMoved,
    MoveMark,
    decode_entry,
    encode_entry,
    encode_move_mark,
    is_move_mark,
)
from penstock.contracts.errors import Corrupt

MARK = MoveMark("nats://a:4222,nats://b:4222", "2026-11-27T10:00:00Z")


def test_a_reader_of_entries_learns_where_the_journal_is() -> None:
    data = encode_move_mark(MARK)
    assert data[0] == 255
    with pytest.raises(JournalMoved, match="moved to nats://a:4222,nats://b:4222, where its stream was made at 2026-"):
        decode_entry(data)


def test_a_damaged_mark_is_no_mark() -> None:
    data = encode_move_mark(MARK)
    with pytest.raises(Corrupt, match="with crc") as caught:
        decode_entry(data[:-1] + b"?")
    assert not isinstance(caught.value, JournalMoved)


def test_only_marks_are_marks() -> None:
    assert is_move_mark(encode_move_mark(MARK))
    assert not is_move_mark(encode_entry(Entry("id", "author", 0, bytes(16), [])))
    assert not is_move_mark(b"")
