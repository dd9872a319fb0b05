"""The forms of a record: a line of text, a line of JSON, a YAML document, or the bytes of its value."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.cli.output import time_text

TEXT, JSON, YAML, RAW = "text", "json", "yaml", "raw"
RECORD_FORMS = (TEXT, JSON, YAML, RAW)
HEX_PREFIX = "0x"


def as_object(record: Any) -> dict[str, Any]:
    """The record as values of JSON. Bytes that are no UTF-8 become hexadecimal, in `key_hex` or `value_hex`."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": time_text(record.timestamp),
    }
    shown |= _text_or_hex("key", record.key)
    shown |= _text_or_hex("value", record.value)
    shown["headers"] = [{"name": name, **_text_or_hex("value", value)} for name, value in record.headers]
    return shown


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
    if f"{name}_hex" in shown:
        return f"{HEX_PREFIX}{shown[f'{name}_hex']}"
    value = shown[name]
    if value is None:
        return "(null)"
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in value)


def as_bytes(record: Any, form: str) -> bytes:
    """The printed form of the record."""
    if form == RAW:
        return (record.value or b"") + b"\n"
    if form == JSON:
        return json.dumps(as_object(record), ensure_ascii=False).encode() + b"\n"
    if form == YAML:
        import yaml

        return b"---\n" + yaml.safe_dump(as_object(record), sort_keys=False, allow_unicode=True).encode()
    return as_line(record).encode() + b"\n"
