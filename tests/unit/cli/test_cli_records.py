"""The forms of records, the filters, and the records that `produce` reads."""

import argparse
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from penstock.cli import parse_arguments
from penstock.cli.records.consume import Counts, stats_text
from penstock.cli.records.filters import parse_filter
from penstock.cli.records.produce import NewRecord, from_json, records_of
from penstock.cli.records.shown import as_bytes, as_object
from penstock.contracts.errors import Invalid


class Record(NamedTuple):
    """A record as kafka-python has it."""

    topic: str = "orders"
    partition: int = 1
    offset: int = 7
    timestamp: int = 1_700_000_000_000
    key: bytes | None = b"k"
    value: bytes | None = b'{"price": 120, "tags": ["a", "b"], "user": {"id": "x"}}'
    headers: Sequence[tuple[str, bytes | None]] = (("source", b"web"),)


PLAIN = Record(value=b"text", headers=[])


def test_a_line_shows_the_place_the_headers_the_key_and_the_value() -> None:
    assert as_bytes(Record(value=b"v"), "text") == b"orders/1@7 2023-11-14T22:13:20.000Z source=web k v\n"
    assert as_bytes(Record(value=None, key=None, headers=[]), "text") == b"orders/1@7 2023-11-14T22:13:20.000Z (null)\n"


def test_a_line_is_one_line_and_cannot_change_the_terminal() -> None:
    line = as_bytes(Record(value=b"a\n\x1b[31m", key=b"\xff\x00", headers=[]), "text")
    assert line == b"orders/1@7 2023-11-14T22:13:20.000Z 0xff00 a\\n\\x1b[31m\n"


@pytest.mark.parametrize("value", [b"text", b"", None, b"\xff\xfe", '"quoted" ä\n'.encode()])
@pytest.mark.parametrize("key", [b"k", None, b"\x80"])
def test_produce_reads_what_consume_prints(key: bytes | None, value: bytes | None) -> None:
    record = Record(key=key, value=value, headers=[("h", b"\xff"), ("empty", b"")])
    line = as_bytes(record, "json")
    assert line.count(b"\n") == 1
    assert from_json(line, 1) == NewRecord(value=value, key=key, headers=list(record.headers), partition=1)
    assert yaml.safe_load(as_bytes(record, "yaml")) == as_object(record) == json.loads(line)


def test_raw_is_the_value_alone() -> None:
    assert as_bytes(Record(value=b"\xff"), "raw") == b"\xff\n"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("value.price > `100`", True),
        ("value.price > `200`", False),
        ("value.user.id == 'x' && headers.source == 'web'", True),
        ("contains(value.tags, 'b')", True),
        ("key == 'k' && partition == `1` && offset >= `7`", True),
        ("starts_with(value, 'te')", False),  # here the value is an object
        ("value.missing", False),
    ],
)
def test_a_filter_sees_the_fields_of_a_record(expression: str, fits: bool) -> None:
    assert parse_filter(expression)(Record()) is fits


def test_a_filter_sees_other_values_as_text() -> None:
    assert parse_filter("starts_with(value, 'te')")(PLAIN)
    assert not parse_filter("value")(PLAIN._replace(value=None))
    assert parse_filter("contains(value, 'b')")(PLAIN._replace(value=b"{broken"))


def test_a_wrong_filter_names_the_mistake() -> None:
    with pytest.raises(Invalid, match="not a JMESPath expression"):
        parse_filter("value.price >")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("length(to_string(@" + "|[@, @]" * 40 + "))", "too many lists"),
        ("map(&`[1,2,3,4,5,6,7,8,9,0]`, @)[]" + "|map(&`[1,2,3,4,5,6,7,8,9,0]`, @)[]" * 9, "too many lists"),
        ("{a: @, b: @}" + "|{a: @, b: @}" * 40, "too many lists"),
        ("(" * 1_500 + "value" + ")" * 1_500, "not a JMESPath expression"),
        ("value == '" + "a" * 5_000 + "'", "too long"),
    ],
    ids=["lists", "literals", "objects", "parentheses", "characters"],
)
def test_a_filter_that_could_take_all_memory_is_rejected(expression: str, reason: str) -> None:
    """A console evaluates filters of its users: forty pairs would make a text of 10^13 bytes."""
    with pytest.raises(Invalid, match=reason):
        parse_filter(expression)


def flags(*words: str) -> argparse.Namespace:
    return parse_arguments(["topic", "produce", "orders", *words])


def read(monkeypatch: pytest.MonkeyPatch, text: bytes, *words: str) -> list[NewRecord]:
    class Input:
        buffer = io.BytesIO(text)

    monkeypatch.setattr(sys, "stdin", Input())
    return list(records_of(flags(*words)))


def test_each_line_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, b"a\r\n\n b ", "-k", "key", "-H", "x=1", "-H", "y=a=b")
    assert [record.value for record in found] == [b"a", b"", b" b "]
    assert {record.key for record in found} == {b"key"}
    assert found[0].headers == [("x", b"1"), ("y", b"a=b")]


def test_a_line_may_have_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, b"a:1\nb::2\n:3\n", "--key-separator", ":")
    assert [(record.key, record.value) for record in found] == [(b"a", b"1"), (b"b", b":2"), (b"", b"3")]


def test_a_value_that_is_json_is_written_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, b'{"value": {"a": 1}}\n{"value": [1], "key": "k"}\n', "--json", "-k", "default")
    assert [(record.key, record.value) for record in found] == [(b"default", b'{"a": 1}'), (b"k", b"[1]")]


def test_a_file_and_single_values_are_read(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"1\n2\n")
    assert [each.value for each in records_of(flags("--file", str(tmp_path / "lines")))] == [b"1", b"2"]
    assert [each.value for each in records_of(flags("--value", "a", "--value", "b"))] == [b"a", b"b"]
    assert list(records_of(flags("--tombstone", "-k", "gone"))) == [NewRecord(key=b"gone")]


@pytest.mark.parametrize(
    ("text", "words", "error_text"),
    [
        (b"a\n", ("--key-separator", "|"), "line 1 has no '|' after its key"),
        (b'{"value": 1}\n[1]\n', ("--json",), "line 2 is no record in JSON: no object with key or value"),
        (b"{\n", ("--json",), "line 1 is no record in JSON"),
        (b'{"value_hex": "x"}\n', ("--json",), "line 1 is no record in JSON"),
        (b"a\n", ("-H", "x"), "a header is NAME=VALUE: 'x'"),
        (b"", ("--tombstone",), "a tombstone deletes the record of a key: give --key"),
        (b"", ("--file", "/nowhere"), "cannot read /nowhere: No such file or directory"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch, text: bytes, words: tuple[str, ...], error_text: str
) -> None:
    with pytest.raises(Invalid, match=error_text.replace("|", r"\|")):
        read(monkeypatch, text, *words)


def test_counts_and_rates_are_shown() -> None:
    counts: Any = Counts(records=3_000, size_bytes=3 * 2**20, printed=10)
    assert stats_text(counts, 2.0) == "3,000 records, 3.0 MiB, 10 printed in 2 s: 1,500 records/s, 1.5 MiB/s"
    assert stats_text(Counts(), 0.0) == "0 records, 0 B in 0 s: 0 records/s, 0 B/s"
