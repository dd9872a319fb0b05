"""Avro schemas as Arrow types, and the conversion of decoded Avro values for Arrow."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.contracts.errors import Invalid

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_DECIMAL_DIGITS_MAX = 38

Convert = Callable[[Any], Any]


def arrow_of_avro(schema: Any) -> Any:
    """The Arrow type of an Avro schema; `Invalid` names a part of the schema that has none."""
    return _arrow(schema, {}, "the root")


def _arrow(schema: Any, named: dict[str, Any], where: str) -> Any:
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise Invalid(f"{where} is a union of several types, and no column can hold that")
        return _arrow(others[0], named, where)
    if isinstance(schema, str):
        if schema in named and named[schema] is None:
            raise Invalid(f"{where} contains itself, and no column can hold that")
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in named:
            return named[schema]
        raise Invalid(f"{where} has the unknown type {schema!r}")
    if not isinstance(schema, dict) or "type" not in schema:
        raise Invalid(f"{where} is no Avro schema: {schema!r}")
    return _arrow_of_complex(schema, named, where)


def _arrow_of_complex(schema: dict[str, Any], named: dict[str, Any], where: str) -> Any:
    kind = schema["type"]
    if kind in ("record", "enum", "fixed"):
        names = _names(schema)
        named.update(dict.fromkeys(names))
        found = _arrow_of_named(schema, named, where)
        named.update(dict.fromkeys(names, found))
        return found
    if kind == "array":
        return pa.list_(_arrow(schema.get("items"), named, f"items of {where}"))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(schema.get("values"), named, f"values of {where}"))
    logical = schema.get("logicalType")
    if logical == "decimal" and kind == "bytes":
        return _decimal(schema, where)
    return _LOGICAL.get((str(kind), str(logical))) or _arrow(kind, named, where)


def _arrow_of_named(schema: dict[str, Any], named: dict[str, Any], where: str) -> Any:
    if schema["type"] == "enum":
        return pa.string()
    if schema["type"] == "fixed":
        return _decimal(schema, where) if schema.get("logicalType") == "decimal" else pa.binary()
    fields = schema.get("fields")
    if not isinstance(fields, list) or not fields:
        raise Invalid(f"{where} is a record without fields")
    return pa.struct([pa.field(each["name"], _arrow(each["type"], named, repr(each["name"]))) for each in fields])


def _decimal(schema: dict[str, Any], where: str) -> Any:
    precision = schema.get("precision")
    if not isinstance(precision, int) or not 1 <= precision <= _DECIMAL_DIGITS_MAX:
        raise Invalid(f"{where} is a decimal of {precision!r} digits, but columns hold 1 to {_DECIMAL_DIGITS_MAX}")
    return pa.decimal128(precision, schema.get("scale", 0))


def _names(schema: dict[str, Any]) -> list[str]:
    name = schema.get("name", "")
    space = schema.get("namespace")
    return [name, f"{space}.{name}"] if space else [name]


def avro_values(schema: Any) -> Convert:
    """A function that converts each decoded record for Arrow: UUIDs become text, other values stay unchanged."""
    return _with_texts if "uuid" in str(schema) else lambda row: row


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_texts(each) for each in value]
    return str(value) if type(value).__name__ == "UUID" else value
