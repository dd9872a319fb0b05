"""Schemas of values as columns: supported types, rejected schemas, and malformed values."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.errors import Invalid
from penstock.spark.export.value_schema import Values, ValueSchema, column_names, read_value_schema, value_type

pytestmark = pytest.mark.spark

UTC_TIME = pa.timestamp("us", tz="UTC")


def record(*types: Any, **more: Any) -> Any:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields, **more}


def avro_fields(*types: Any) -> list[Any]:
    return [field.type for field in value_type(ValueSchema("avro", json.dumps(record(*types))))]


def json_fields(**properties: Any) -> list[Any]:
    schema = {"type": "object", "properties": properties}
    return [field.type for field in value_type(ValueSchema("json", json.dumps(schema)))]


def test_avro_types_become_arrow_types() -> None:
    assert avro_fields("boolean", "int", "long", "float", "double", "bytes", "string") == [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.binary(),
        pa.string(),
    ]
    assert avro_fields(
        ["null", "long"],
        {"type": "array", "items": "int"},
        {"type": "map", "values": "string"},
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "fixed", "name": "F", "size": 4},
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "int", "logicalType": "date"},
        {"type": "string", "logicalType": "uuid"},
        "E",
        {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "F"}]},
    ) == [
        pa.int64(),
        pa.list_(pa.int32()),
        pa.map_(pa.string(), pa.string()),
        pa.string(),
        pa.binary(),
        pa.decimal128(10, 2),
        UTC_TIME,
        pa.date32(),
        pa.string(),
        pa.string(),
        pa.struct([("x", pa.binary())]),
    ]


def test_json_types_become_arrow_types() -> None:
    assert json_fields(
        a={"type": "integer"},
        b={"type": ["number", "null"]},
        c={"type": "string", "format": "date-time"},
        d={"type": "string", "format": "date"},
        e={"type": "array", "items": {"type": "object", "properties": {"x": {"type": "boolean"}}}},
        f={"type": "object", "additionalProperties": {"type": "string"}},
        g={"type": "string", "format": "email"},
    ) == [
        pa.int64(),
        pa.float64(),
        UTC_TIME,
        pa.date32(),
        pa.list_(pa.struct([("x", pa.bool_())])),
        pa.map_(pa.string(), pa.string()),
        pa.string(),
    ]


@pytest.mark.parametrize(
    ("kind", "schema", "error_text"),
    [
        ("json", [], "the root is no schema"),
        ("json", {"type": "string"}, "root must be an object"),
        ("json", {"type": "object"}, "additionalProperties of the root is no schema"),
        ("json", {"type": "object", "properties": {"a": {}}}, "'a' must have one type"),
        ("json", {"type": "object", "properties": {"a": {"type": "null"}}}, "'a' must have one type"),
        ("json", {"type": "object", "properties": {"a": {"type": "array"}}}, "items of 'a' is no schema"),
        ("avro", "string", "root must be an object"),
        ("avro", record(["int", "string"]), "'f0' is a union of several types"),
        ("avro", record("R"), "'f0' contains itself"),
        ("avro", record("Other"), "'f0' has the unknown type 'Other'"),
        ("avro", record(), "a record without fields"),
        ("avro", record({"type": "bytes", "logicalType": "decimal", "precision": 99}), "a decimal of 99 digits"),
    ],
)
def test_a_type_that_no_column_can_hold_is_named(kind: str, schema: Any, error_text: str) -> None:
    with pytest.raises(Invalid, match=error_text):
        value_type(ValueSchema(kind, json.dumps(schema)))


def test_a_file_that_is_no_schema_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text("{")
    with pytest.raises(Invalid, match=r"a\.avsc: not JSON"):
        read_value_schema(tmp_path / "a.avsc")
    with pytest.raises(Invalid, match=r"a value schema must be a \.json file"):
        read_value_schema(tmp_path / "a.proto")
    with pytest.raises(Invalid, match=r"cannot read the value schema .*: No such file or directory$"):
        read_value_schema(tmp_path / "b.json")


def test_fields_with_the_name_of_another_column_get_a_prefix() -> None:
    assert column_names(["id", "Key", "value_key", "_malformed", "offset"], ["key", "offset"]) == [
        "id",
        "value_Key",
        "value_value_key",
        "value__malformed",
        "value_offset",
    ]


def test_values_of_a_wrong_type_are_malformed() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "t": {"type": "string", "format": "date-time"}},
    }
    values = [
        b'{"n": 1.0}',
        b'{"n": 1.5}',
        b'{"n": "1"}',
        b'{"t": "noon"}',
        b"[]",
        b"\xff",
        b'{"t": "2026-01-01T00:00:00"}',
    ]
    [numbers, times], malformed = Values(ValueSchema("json", json.dumps(schema))).columns(pa.array(values))
    assert numbers.to_pylist()[1:] == [None] * 6
    assert malformed.to_pylist()[1:] == [*values[1:6], None]
    assert str(times[6].as_py()) == "2026-01-01 00:00:00+00:00"


EVERY_AVRO_TYPE = record(
    "int",
    "double",
    "string",
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "enum", "name": "E", "symbols": ["A"]},
    {"type": "fixed", "name": "F", "size": 4},
    {"type": "array", "items": ["null", "long"]},
    {"type": "map", "values": "boolean"},
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
def test_no_bytes_stop_an_export(values: list[bytes]) -> None:
    for schema in (ValueSchema("avro", json.dumps(EVERY_AVRO_TYPE)), ValueSchema("avro", json.dumps(record("long")))):
        columns, malformed = Values(schema).columns(pa.array(values, pa.binary()))
        assert all(len(column) == len(values) for column in columns)
        assert all(bad in (None, value) for bad, value in zip(malformed.to_pylist(), values, strict=True))


def test_a_decoded_value_that_a_column_cannot_hold_is_malformed() -> None:
    decimals = ValueSchema("avro", json.dumps(record({"type": "bytes", "logicalType": "decimal", "precision": 3})))
    values = [b"\x02\x05", b"\x08\x7f\xff\xff\xff", b"\x02\x07"]
    [numbers], malformed = Values(decimals).columns(pa.array(values))
    assert [None if each is None else int(each) for each in numbers.to_pylist()] == [5, None, 7]
    assert malformed.to_pylist() == [None, values[1], None]
    deep = b'{"n": ' + b"[" * 100_000
    anything = ValueSchema("json", '{"type": "object", "properties": {"n": {"type": "integer"}}}')
    _, malformed = Values(anything).columns(pa.array([deep, b'{"other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"]))
    assert malformed.to_pylist()[0] == deep
