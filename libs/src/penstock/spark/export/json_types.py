"""JSON schemas as Arrow types, and decoders that accept exactly the values that these types can hold.

The supported keywords of JSON Schema are type (one, or one and null), properties, required, items and
additionalProperties. The supported formats are date-time and date. An object without properties is a map if
additionalProperties has a schema. Properties that the schema does not name are left out. Other keywords are ignored.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from penstock.contracts.errors import Invalid

_INTEGER = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_PLAIN: dict[str, tuple[Any, Any]] = {
    "integer": (pa.int64(), _INTEGER),
    "number": (pa.float64(), float),
    "boolean": (pa.bool_(), bool),
    "string": (pa.string(), str),
}
_FORMATS: dict[str, tuple[Any, Any]] = {
    "date-time": (pa.timestamp("us", tz="UTC"), datetime),
    "date": (pa.date32(), date),
}


def arrow_of_json(schema: Any) -> Any:
    """The Arrow type of a JSON schema; `Invalid` names a part of the schema that has none."""
    return _types(schema, "the root")[0]


def json_decoder(schema: Any) -> Callable[[bytes], dict[str, Any]]:
    """A function from a JSON text to its fields; raises `ValueError` if the text does not match the schema."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_types(schema, "the root")[1])

    def decode(value: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = _with_zones(msgspec.to_builtins(decoder.decode(value), builtin_types=(datetime, date)))
        return fields

    def decode_plain(value: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(decoder.decode(value))
        return fields

    return decode if _has_times(schema) else decode_plain


def _types(schema: Any, where: str) -> tuple[Any, Any]:
    """(Arrow type, Python type) of a schema."""
    if not isinstance(schema, dict):
        raise Invalid(f"{where} is no schema of an object: {schema!r}")
    kind, is_nullable = _kind(schema, where)
    if kind == "object":
        arrow, python = _object(schema, where)
    elif kind == "array":
        element, of_element = _types(schema.get("items", True), f"items of {where}")
        arrow, python = pa.list_(element), list[of_element]  # type: ignore[valid-type]
    elif kind == "string" and schema.get("format") in _FORMATS:
        arrow, python = _FORMATS[schema["format"]]
    elif kind in _PLAIN:
        arrow, python = _PLAIN[kind]
    else:
        raise Invalid(f"{where} has the type {kind!r}, and no column can hold that")
    return arrow, python | None if is_nullable else python


def _kind(schema: dict[str, Any], where: str) -> tuple[str, bool]:
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    others = [each for each in kinds if each != "null"]
    if len(others) != 1 or not isinstance(others[0], str):
        raise Invalid(f"{where} must have one type (or one and null): {kind!r}")
    return others[0], len(others) < len(kinds)


def _object(schema: dict[str, Any], where: str) -> tuple[Any, Any]:
    properties = schema.get("properties")
    if not properties:
        value, of_value = _types(schema.get("additionalProperties"), f"additionalProperties of {where}")
        return pa.map_(pa.string(), value), dict[str, of_value]  # type: ignore[valid-type]
    required = set(schema.get("required", ()))
    fields, members, names = [], [], {}
    for number, (name, each) in enumerate(properties.items()):
        arrow, python = _types(each, f"{name!r}")
        fields.append(pa.field(name, arrow))
        member = f"field_{number}"
        names[member] = name
        members.append((member, python) if name in required else (member, python | None, None))
    # Fields with a default must come last in a struct, unless all fields are keywords.
    return pa.struct(fields), msgspec.defstruct("Value", members, rename=names, kw_only=True)


def _has_times(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("format") in _FORMATS or any(_has_times(each) for each in schema.values())
    return isinstance(schema, list) and any(_has_times(each) for each in schema)


def _with_zones(value: Any) -> Any:
    """The value with a zone in all its times; times without a zone are in UTC."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, dict):
        return {name: _with_zones(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_zones(each) for each in value]
    return value
