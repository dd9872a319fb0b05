"""Identifiers read back from their texts, and other texts are rejected."""

import pytest
from hypothesis import given, strategies as st

from penstock.contracts import ids
from penstock.contracts.errors import Invalid

ENTROPY = st.binary(min_size=ids.ENTROPY_BYTES, max_size=ids.ENTROPY_BYTES)
TIMES_MS = st.integers(0, 2**48 - 1)


@given(TIMES_MS, ENTROPY)
def test_a_segment_id_contains_its_creation_time(now_ms: int, entropy: bytes) -> None:
    segment_id = ids.new_segment_id(now_ms, entropy)
    assert len(segment_id) == ids.ID_BYTES
    assert ids.segment_born_ms(segment_id) == now_ms


@given(st.lists(st.tuples(TIMES_MS, ENTROPY), min_size=2, max_size=2))
def test_segment_ids_and_their_texts_sort_by_creation_time(pair: list[tuple[int, bytes]]) -> None:
    older, newer = sorted(ids.new_segment_id(*part) for part in pair)
    assert ids.segment_born_ms(older) <= ids.segment_born_ms(newer)
    assert ids.ulid_text(older) <= ids.ulid_text(newer)


@given(TIMES_MS, ENTROPY)
def test_an_express_id_has_its_time_and_differs_from_all_other_new_ids(now_ms: int, entropy: bytes) -> None:
    express = ids.new_landed_id(now_ms, entropy)
    assert (len(express), ids.segment_born_ms(express), ids.is_landed(express)) == (ids.ID_BYTES, now_ms, True)
    for ends in (entropy, entropy[: -len(ids.LANDED_END)] + ids.LANDED_END):
        assert not ids.is_landed(ids.new_segment_id(now_ms, ends))


@given(st.binary(min_size=16, max_size=16))
def test_a_ulid_reads_back_from_its_text(identifier: bytes) -> None:
    text = ids.ulid_text(identifier)
    assert len(text) == ids.ULID_TEXT_LENGTH
    assert ids.parse_ulid(text) == identifier


@pytest.mark.parametrize("text", ["", "0" * 25, "0" * 27, "8" + "0" * 25, "U" + "0" * 25, "l" * 26, "０" * 26])
def test_no_other_text_is_a_ulid(text: str) -> None:
    with pytest.raises(Invalid):
        ids.parse_ulid(text)


@given(st.binary(min_size=16, max_size=16))
def test_a_topic_id_is_a_version_4_uuid_and_prints_as_kafka_prints_it(entropy: bytes) -> None:
    topic_id = ids.new_topic_id(entropy)
    assert topic_id[6] >> 4 == 4
    assert topic_id[8] >> 6 == 2
    assert len(ids.topic_id_text(topic_id)) == 22


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_kafkas_legal_topic_names_are_legal(name: str) -> None:
    assert ids.is_legal_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n"])
def test_other_topic_names_are_not(name: str) -> None:
    assert not ids.is_legal_topic_name(name)


@pytest.mark.parametrize("token", ["", "a.b", "*", ">", "a b", "x" * 65, "a/b"])
def test_a_text_that_cannot_be_a_subject_token_is_rejected_by_kind(token: str) -> None:
    with pytest.raises(Invalid, match="zone"):
        ids.check_token("zone", token)
