"""Avro payloads are read as fastavro writes them, and hostile ones end with one error."""

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.errors import Invalid
from penstock.schemas.avro import AvroReader
from penstock.schemas.json_values import json_value
from penstock.schemas.limits import DEFAULT_LIMITS

LONGS = st.integers(-(2**63), 2**63 - 1)
NAMES = [f"f{number}" for number in range(4)]
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "n", "type": "int"}, {"name": "parts", "type": {"type": "array", "items": "Tree"}}],
}
CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}


def written(schema: Any, value: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def reader(schema: Any, *referenced: Any) -> AvroReader:
    return AvroReader(json.dumps(schema), [json.dumps(each) for each in referenced], DEFAULT_LIMITS)


def pairs(depth: int) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """Schemas, each with the values that fit it."""
    simple = st.sampled_from(
        [
            ("boolean", st.booleans()),
            ("int", st.integers(-(2**31), 2**31 - 1)),
            ("long", LONGS),
            ("double", st.floats()),
            ("string", st.text()),
            ("bytes", st.binary()),
            ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
        ]
    )
    if not depth:
        return simple
    inner = pairs(depth - 1)
    return st.one_of(
        simple,
        inner.map(lambda found: ({"type": "array", "items": found[0]}, st.lists(found[1], max_size=5))),
        inner.map(
            lambda found: ({"type": "map", "values": found[0]}, st.dictionaries(st.text(), found[1], max_size=5))
        ),
        inner.map(lambda found: (["null", found[0]], st.one_of(st.none(), found[1]))),
    )


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, Any]:
    fields = draw(st.lists(pairs(2), min_size=1, max_size=len(NAMES)))
    schemas = [{"name": name, "type": _renamed(schema, name)} for name, (schema, _) in zip(NAMES, fields, strict=False)]
    value = {name: draw(values) for name, (_, values) in zip(NAMES, fields, strict=False)}
    return {"type": "record", "name": "shop.Order", "fields": schemas}, value


def _renamed(schema: Any, name: str) -> Any:
    """The schema with another name for the fixed type in it, because names are unique."""
    return json.loads(json.dumps(schema).replace('"F"', f'"{name.upper()}"'))


@given(records())
def test_a_record_has_the_value_that_was_written(record: tuple[Any, Any]) -> None:
    schema, value = record
    name, found = reader(schema).read(written(schema, value))
    assert name == "shop.Order"
    assert found == json_value(value)
    json.dumps(found, allow_nan=False).encode()


TREES: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 9).map(lambda number: {"n": number, "parts": []}),
    lambda trees: st.builds(lambda number, parts: {"n": number, "parts": parts}, st.integers(0, 9), st.lists(trees)),
)


@given(TREES)
def test_a_value_of_a_recursive_schema_is_read(tree: Any) -> None:
    assert reader(TREE).read(written(TREE, tree)) == ("Tree", tree)


@given(st.sampled_from([TREE, CHAIN, ["null", "string"], {"type": "map", "values": "double"}]), st.binary(max_size=50))
def test_any_payload_is_read_or_invalid(schema: Any, payload: bytes) -> None:
    found = reader(schema)
    try:
        json.dumps(found.read(payload)[1], allow_nan=False)
    except Invalid as error:
        assert "payload" in str(error)


@pytest.mark.parametrize("count", [1_000, 90_000, 1_000_000])
def test_a_value_that_is_too_deep_does_not_end_the_process(count: int) -> None:
    with pytest.raises(Invalid, match="recursi"):
        reader(CHAIN).read(b"\x02" * count + b"\0")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array", "items": "null"}, "a list whose items take no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "a list whose items take no bytes"),
        ({"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}, "contains itself"),
        ({"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}, "UnknownType: B"),
        ({"type": "record"}, "cannot be read: "),
        ([], "cannot be read: ValueError"),
    ],
)
def test_a_schema_whose_values_may_have_no_end_is_invalid(schema: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        reader(schema)


def test_a_schema_that_is_no_json_is_invalid() -> None:
    for text in ("", "{", "[" * 100_000):
        with pytest.raises(Invalid, match="its Avro schema cannot be read"):
            AvroReader(text, [], DEFAULT_LIMITS)


def test_bytes_after_the_value_are_an_error() -> None:
    with pytest.raises(Invalid, match="2 bytes after its Avro value"):
        reader("string").read(b"\x02axx")


def test_logical_types_are_texts_and_names_are_those_of_the_schema() -> None:
    fields = {
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "day": {"type": "int", "logicalType": "date"},
        "state": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]},
    }
    schema = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    at = datetime.datetime(2026, 11, 27, 8, 30, tzinfo=datetime.UTC)
    value = {"price": Decimal("12.30"), "at": at, "day": at.date(), "state": "OLD"}
    expected = {"price": "12.30", "at": "2026-11-27T08:30:00+00:00", "day": "2026-11-27", "state": "OLD"}
    assert reader(schema).read(written(schema, value)) == ("shop.Order", expected)


def test_referenced_types_are_read_wherever_they_are_used() -> None:
    user = {"type": "record", "name": "User", "namespace": "a", "fields": [{"name": "id", "type": "long"}]}
    team = {"type": "record", "name": "a.Team", "fields": [{"name": "head", "type": "a.User"}]}
    assert reader(["a.User", "a.Team"], user, team).read(b"\x02\x0a") == ("union", {"head": {"id": 5}})
    assert reader({"type": "array", "items": "a.Team"}, user, team).read(b"\x02\x0a\0") == (
        "array",
        [{"head": {"id": 5}}],
    )
    pair = {"type": "record", "name": "P", "fields": [{"name": name, "type": "a.User"} for name in ("x", "y")]}
    assert reader(pair, user).read(b"\x02\x04") == ("P", {"x": {"id": 1}, "y": {"id": 2}})
