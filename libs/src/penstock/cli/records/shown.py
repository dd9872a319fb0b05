"""The forms of a record: a line of text, a line of JSON, a YAML document, or the bytes of its value."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.cli.output import time_text
from penstock.cli.records.decoded import finding_of
from penstock.schemas.decoding import Decoded, Undecoded

TEXT, JSON, YAML, RAW = "text", "json", "yaml", "raw"
RECORD_FORMS = (TEXT, JSON, YAML, RAW)
HEX_PREFIX = "0x"


def as_object(record: Any, *, headers_max: int | None = None) -> dict[str, Any]:
    """The record as values of JSON, with all headers or the first `headers_max`.

    Bytes that are no UTF-8 become hexadecimal, in `key_hex` or `value_hex`. A decoded key or value comes with its
    schema, in `key_schema` or `value_schema`. If it has a frame and cannot be decoded, its bytes are hexadecimal, and
    `key_error` or `value_error` has the reason.
    """
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": time_text(record.timestamp),
    }
    shown |= _field(record, "key")
    shown |= _field(record, "value")
    shown["headers"] = [{"name": name, **_text_or_hex("value", value)} for name, value in record.headers[:headers_max]]
    return shown


def _field(record: Any, name: str) -> dict[str, Any]:
    found = finding_of(record, name)
    if isinstance(found, Decoded):
        schema = {"id": found.schema_id, "type": found.type, "name": found.name}
        return {name: found.value, f"{name}_schema": schema}
    data = getattr(record, name)
    if found is None:
        return dict(_text_or_hex(name, data))
    return {f"{name}_hex": data.hex(), f"{name}_error": error_text(found)}


def error_text(found: Undecoded) -> str:
    """The reason with the id of the schema."""
    return f"schema {found.schema_id}: {found.reason}"


def _text_or_hex(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": data.hex()}


def as_line(record: Any) -> str:
    """The record as one line: its place and time, its key and value, and its headers."""
    shown = as_object(record)
    headers = "".join(f" {header['name']}={_plain(header, 'value')}" for header in shown["headers"])
    key = "" if record.key is None else f" {_plain(shown, 'key')}"
    place = f"{shown['topic']}/{shown['partition']}@{shown['offset']} {shown['time']}"
    return f"{place}{headers}{key} {_plain(shown, 'value')}"


def _plain(shown: Mapping[str, Any], name: str) -> str:
    """A key or value that cannot change the terminal or begin a new line."""
    error = f" ({shown[f'{name}_error']})" if f"{name}_error" in shown else ""
    if f"{name}_hex" in shown:
        return f"{HEX_PREFIX}{shown[f'{name}_hex']}{error}"
    value = shown[name]
    if value is None:
        return "(null)"
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in f"{_as_text(value)}{error}")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_bytes(record: Any, form: str) -> bytes:
    """The printed form of the record."""
    if form == RAW:
        found = finding_of(record, "value")
        if isinstance(found, Decoded):
            return _as_text(found.value).encode() + b"\n"
        return (record.value or b"") + b"\n"
    if form == JSON:
        return json.dumps(as_object(record), ensure_ascii=False).encode() + b"\n"
    if form == YAML:
        import yaml

        return b"---\n" + yaml.safe_dump(as_object(record), sort_keys=False, allow_unicode=True).encode()
    return as_line(record).encode() + b"\n"
