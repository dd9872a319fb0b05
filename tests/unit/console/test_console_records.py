"""Records are shown as text, as JSON or as hexadecimal, never longer than a page may be."""

import json
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.cli.kafka.session import Session
from penstock.cli.records.filters import parse_filter
from penstock.contracts.errors import Invalid
from penstock.schemas.decoding import Decoder
from penstock.schemas.registry import parse_address
from penstock_console.kafka.records import (
    Header,
    NewRecord,
    RecordLimits,
    RecordPage,
    RecordQuery,
    RecordSchema,
    read_page,
    shown,
    write,
)
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.servers.schema_registry import SchemaRegistry, framed, serving
from tests.unit.console.console_fakes import FakeRecord, FakeSession
from tests.unit.sequencer.core.core_world import World, batch

LIMITS = RecordLimits(shown_characters_max=60)


def value_of(value: bytes | None, limits: RecordLimits = LIMITS) -> tuple[str | None, str, bool]:
    found = shown(FakeRecord(value=value), limits)
    assert found.value_bytes == (0 if value is None else len(value))
    return found.value, found.value_format, found.is_cut


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (None, "null", False)),
        (b"", ("", "text", False)),
        (b"plain \xc3\xa9", ("plain \u00e9", "text", False)),
        (b"\xff\x00", ("ff00", "hex", False)),
        (b'{"a":[1]}', ('{\n  "a": [\n    1\n  ]\n}', "json", False)),
        (b" [1]", ("[\n  1\n]", "json", False)),
        (b"{no json", ("{no json", "text", False)),
        (b"7", ("7", "text", False)),
        (b"x" * 60, ("x" * 60, "text", False)),
        (b"x" * 61, ("x" * 60, "text", True)),
        (b"\xff" * 31, ("ff" * 30, "hex", True)),
    ],
)
def test_a_value_is_shown_in_its_format(value: bytes | None, expected: tuple[str | None, str, bool]) -> None:
    assert value_of(value) == expected


def test_a_record_is_shown_with_its_first_headers_and_the_number_of_all_others() -> None:
    limits = RecordLimits(shown_headers_max=2, header_name_characters_max=3)
    found = shown(FakeRecord(headers=[("first", b"1"), ("b", None), ("c", b"3"), ("d", b"4")]), limits)
    assert (found.headers, found.headers_left) == ([Header("fir", "1"), Header("b", None)], 2)
    assert shown(FakeRecord(headers=[("a", b"1")]), limits).headers_left == 0


def test_json_that_is_too_long_is_cut_after_it_was_formatted() -> None:
    text, form, is_cut = value_of(json.dumps(list(range(100))).encode())
    assert (form, is_cut) == ("json", True)
    assert text is not None and text.startswith("[\n  0,\n  1,") and len(text) == 60


@pytest.mark.parametrize("value", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000])
def test_json_that_is_too_deep_is_a_text(value: bytes) -> None:
    """A parser of Python fails on it, and one such record must not make a topic unreadable."""
    assert value_of(value)[1:] == ("text", True)
    assert parse_filter("value")(FakeRecord(value=value)) is True


def test_deep_json_is_not_formatted_beyond_what_is_shown() -> None:
    """Each line would begin with a thousand blanks: a value of 1 MB would become one of 500 MB."""
    depth = 400
    value = b"[" * depth + b",".join([b"1"] * 400_000) + b"]" * depth
    assert value_of(value, RecordLimits(shown_characters_max=1_000_000))[1:] == ("json", True)


@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode)), st.integers(0, 100))
def test_each_record_has_a_form_that_json_holds(data: bytes, characters_max: int) -> None:
    record = FakeRecord(key=data, value=data, headers=[("h", data), ("n", None)])
    found = shown(record, RecordLimits(shown_characters_max=characters_max))
    assert json.loads(msgspec.json.encode(found))["value"] == found.value
    assert found.value is not None and found.key == found.value
    assert len(found.value) <= characters_max
    assert found.headers[1] == Header("n", None)


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '["\\udfff"]', '{"a": NaN}', "[1e999]"])
def test_json_without_a_form_in_utf_8_is_shown_as_it_is(text: str) -> None:
    found = shown(FakeRecord(value=text.encode()))
    assert json.loads(msgspec.json.encode(found))["value"] == found.value


def session_with(*records: FakeRecord) -> tuple[Session, FakeSession]:
    """A topic "t" of two partitions with these records."""
    world = World()
    world.topic(partitions=2)
    for number in range(2):
        count = sum(each.partition == number for each in records)
        if count:
            world.produce(batch(count), partition=number)
    fake = FakeSession(world)
    fake.records = list(records)
    return cast(Session, fake), fake


def places(page: RecordPage) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in page.records]


def some(count: int) -> list[FakeRecord]:
    return [
        FakeRecord(partition=each % 2, offset=each // 2, timestamp=1_000 + each, value=b'{"n": %d}' % each)
        for each in range(count)
    ]


def test_the_last_records_of_all_partitions_are_in_the_order_of_their_times() -> None:
    session, _ = session_with(*some(20))
    page = read_page(session, RecordQuery(topic="t", start="-4"))
    assert places(page) == [(0, 8), (1, 8), (0, 9), (1, 9)]
    assert (page.is_complete, page.next_offsets) == (True, {0: 10, 1: 10})


def test_pages_of_one_partition_follow_each_other_without_a_gap() -> None:
    session, _ = session_with(*some(20))
    start, found = "earliest", []
    while True:
        page = read_page(session, RecordQuery(topic="t", partition=0, start=start, limit=3))
        found += places(page)
        if page.is_complete:
            break
        start = str(page.next_offsets[0])
    assert found == [(0, offset) for offset in range(10)]


def test_a_filter_chooses_records_and_the_page_counts_what_it_has_read() -> None:
    session, _ = session_with(*some(20))
    page = read_page(session, RecordQuery(topic="t", start="earliest", filter="value.n > `16`"))
    assert [each.value_format for each in page.records] == ["json"] * 3
    assert (page.scanned, page.is_complete) == (20, True)


def test_a_filter_ends_after_the_records_that_a_page_may_read() -> None:
    session, _ = session_with(*some(20))
    query = RecordQuery(topic="t", start="earliest", filter="key", limit=2)
    page = read_page(session, query, RecordLimits(scanned_max=5))
    assert (page.records, page.is_complete) == ([], False)
    assert 5 <= page.scanned < 20


@pytest.mark.parametrize(
    "query",
    [
        RecordQuery(topic="gone"),
        RecordQuery(topic="t", partition=2),
        RecordQuery(topic="t", start="tomorrow"),
        RecordQuery(topic="t", filter="value >"),
        RecordQuery(topic="t/0/1"),
    ],
)
def test_a_page_that_cannot_be_read_is_invalid(query: RecordQuery) -> None:
    session, _ = session_with(*some(2))
    with pytest.raises(Invalid):
        read_page(session, query)


class StepClock(ManualClock):
    """A clock that goes on by a second each time it is read."""

    def monotonic_s(self) -> float:
        self.now_s += 1.0
        return self.now_s


def test_a_page_that_takes_long_ends_between_records_and_the_next_one_misses_none() -> None:
    session, _ = session_with(*some(20))
    start, found, pages = "earliest", [], 0
    limits = RecordLimits(read_s_max=4.0)
    while True:
        page = read_page(session, RecordQuery(topic="t", partition=0, start=start), limits, clock=StepClock())
        found += places(page)
        pages += 1
        if page.is_complete:
            break
        start = str(page.next_offsets[0])
    assert found == [(0, offset) for offset in range(10)]
    assert pages == 4


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as started:
        yield started


def test_decoded_values_are_filtered_and_shown_with_their_schema(registry: SchemaRegistry) -> None:
    schema = {"type": "record", "name": "shop.Order", "fields": [{"name": "price", "type": "long"}]}
    schema_id = registry.register("t-value", schema)
    key_id = registry.register("t-key", '"string"')
    orders = [
        FakeRecord(offset=price, key=framed(key_id, b"\x02k"), value=framed(schema_id, bytes([2 * price])))
        for price in range(5)
    ]
    others = [FakeRecord(offset=5, value=framed(7, b"x")), FakeRecord(offset=6, value=b'{"price": 9}')]
    session, _ = session_with(*orders, *others)
    decoder = Decoder(parse_address(registry.url))
    query = RecordQuery(topic="t", start="earliest", filter="value.price > `3`")
    chosen, plain = read_page(session, query, decoder=decoder).records
    assert (chosen.key, chosen.key_format, chosen.key_schema) == ("k", "text", RecordSchema(key_id, "AVRO", "string"))
    assert (chosen.value, chosen.value_format) == ('{\n  "price": 4\n}', "json")
    assert (chosen.value_schema, chosen.value_bytes) == (RecordSchema(schema_id, "AVRO", "shop.Order"), 6)
    assert (plain.value, plain.value_schema, plain.value_error) == ('{\n  "price": 9\n}', None, "")

    unknown = read_page(session, RecordQuery(topic="t", partition=0, start="5"), decoder=decoder).records[0]
    assert (unknown.value_format, unknown.value) == ("hex", "000000000778")
    assert unknown.value_error == "schema 7: the registry has no schema of this id"
    without = read_page(session, RecordQuery(topic="t", start="earliest")).records
    assert {(each.value_schema, each.value_error) for each in without} == {(None, "")}


def test_a_decoded_value_is_not_shown_beyond_the_page(registry: SchemaRegistry) -> None:
    schema_id = registry.register("t-value", {"type": "array", "items": "int"})
    payload = b"\xa0\x8d\x06" + b"\2" * 50_000 + b"\0"
    session, _ = session_with(FakeRecord(value=framed(schema_id, payload)))
    decoder = Decoder(parse_address(registry.url))
    (found,) = read_page(session, RecordQuery(topic="t"), LIMITS, decoder=decoder).records
    assert (found.value_format, found.is_cut) == ("json", True)
    assert found.value is not None and found.value.startswith("[\n  1,\n  1,") and len(found.value) == 60


def test_an_empty_topic_has_a_complete_page_without_records() -> None:
    session, _ = session_with()
    assert read_page(session, RecordQuery(topic="t")) == RecordPage([], 0, True, {0: 0, 1: 0})


def test_a_record_is_written_with_its_key_and_headers_or_as_a_tombstone() -> None:
    session, fake = session_with()
    written = write(session, NewRecord(topic="t", partition=1, key="k", value="v", headers=["a=1=2", "b="]))
    assert (written.partition, written.offset) == (1, 0)
    write(session, NewRecord(topic="t", partition=1, is_tombstone=True, key="k"))
    write(session, NewRecord(topic="t", partition=1))
    found: list[Any] = [(each.key, each.value, each.headers) for each in fake.records]
    assert found == [(b"k", b"v", (("a", b"1=2"), ("b", b""))), (b"k", None, ()), (None, b"", ())]


@pytest.mark.parametrize(
    "record",
    [
        NewRecord(topic="gone"),
        NewRecord(topic="t", partition=9),
        NewRecord(topic="t", headers=["no value"]),
        NewRecord(topic="t", headers=["=1"]),
        NewRecord(topic="t", value="\u00e9" * 450_001),
    ],
)
def test_a_record_that_cannot_be_written_is_invalid(record: NewRecord) -> None:
    session, fake = session_with()
    with pytest.raises(Invalid):
        write(session, record)
    assert fake.records == []
