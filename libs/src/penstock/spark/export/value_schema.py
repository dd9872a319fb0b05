"""A topic's values as columns: with a JSON schema for JSON, or with an Avro schema for binary Avro.

A value that does not match the schema does not stop the export, and is not lost. Its columns stay empty, and the value
itself is in the column `_malformed`.
"""

import io
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.contracts.errors import Invalid
from penstock.spark.export.avro_types import arrow_of_avro, avro_values
from penstock.spark.export.json_types import arrow_of_json, json_decoder

MALFORMED = "_malformed"
CLASH_PREFIX = "value_"
CONFLUENT_HEAD_BYTES = 5  # a zero byte and the schema's id in a registry
_ZERO = 0
# All exceptions of decoders and of Arrow for bytes that do not match a schema.
BAD_VALUE = (
    ValueError,
    LookupError,
    EOFError,
    TypeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    struct.error,
    pa.ArrowException,
)

Decode = Callable[[bytes], dict[str, Any]]


class ValueSchema(msgspec.Struct, frozen=True):
    """The text of a schema file, to be sent to tasks."""

    kind: str  # "json" or "avro"
    text: str
    has_confluent_head: bool = False


def read_value_schema(path: Path, *, has_confluent_head: bool = False) -> ValueSchema:
    """The schema in a .json or .avsc file; `Invalid` with one sentence if it cannot define columns."""
    kind = {".json": "json", ".avsc": "avro"}.get(path.suffix)
    if kind is None:
        raise Invalid(f"a value schema must be a .json file (JSON schema) or an .avsc file (Avro): {path}")
    try:
        schema = ValueSchema(kind, path.read_text(encoding="utf-8"), has_confluent_head)
    except OSError as error:
        raise Invalid(f"cannot read the value schema {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"cannot read the value schema {path}: it is not text in UTF-8") from error
    try:
        value_type(schema)
    except Invalid as error:
        raise Invalid(f"{path}: {error}") from error
    return schema


def value_type(schema: ValueSchema) -> Any:
    """The Arrow struct whose fields become columns."""
    try:
        raw = json.loads(schema.text)
    except ValueError as error:
        raise Invalid(f"not JSON: {error}") from error
    found = arrow_of_json(raw) if schema.kind == "json" else arrow_of_avro(raw)
    if not pa.types.is_struct(found) or not found.num_fields:
        raise Invalid("the schema's root must be an object with properties, or a record with fields")
    return found


def column_names(fields: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The column names of fields; a name that another column has gets a prefix."""
    used = {name.lower() for name in (*taken, MALFORMED)}
    names = []
    for field in fields:
        name = field
        while name.lower() in used:
            name = CLASH_PREFIX + name
        used.add(name.lower())
        names.append(name)
    return names


class Values:
    """Converts values into columns, many at a time."""

    def __init__(self, schema: ValueSchema) -> None:
        self.type = value_type(schema)
        raw = json.loads(schema.text)
        decode = json_decoder(raw) if schema.kind == "json" else _avro_decoder(raw)
        self._decode = _after_head(decode) if schema.has_confluent_head else decode

    def columns(self, values: Any) -> tuple[list[Any], Any]:
        """Arrow arrays of the fields, and one of the values that do not match the schema."""
        rows: list[dict[str, Any] | None] = []
        malformed: list[bytes | None] = []
        for value in values.to_pylist():
            row, bad = self._row(value)
            rows.append(row)
            malformed.append(bad)
        try:
            found = pa.array(rows, self.type)
        except BAD_VALUE:
            found = self._one_by_one(values.to_pylist(), rows, malformed)
        return found.flatten(), pa.array(malformed, pa.binary())

    def _one_by_one(
        self, values: list[bytes | None], rows: list[dict[str, Any] | None], malformed: list[bytes | None]
    ) -> Any:
        """The rows as an array, null where Arrow rejects a decoded row, for example a number with too many digits."""
        for number, row in enumerate(rows):
            try:
                pa.array([row], self.type)
            except BAD_VALUE:
                rows[number], malformed[number] = None, values[number]
        return pa.array(rows, self.type)

    def _row(self, value: bytes | None) -> tuple[dict[str, Any] | None, bytes | None]:
        if value is None:
            return None, None
        try:
            return self._decode(value), None
        except BAD_VALUE:
            return None, value


def _avro_decoder(raw: Any) -> Decode:
    from fastavro import parse_schema, schemaless_reader

    parsed = parse_schema(raw)
    convert = avro_values(raw)

    def decode(value: bytes) -> dict[str, Any]:
        source = io.BytesIO(value)
        row = schemaless_reader(source, parsed, None)
        if source.tell() != len(value):
            raise ValueError("bytes after the record")
        converted: dict[str, Any] = convert(row)
        return converted

    return decode


def _after_head(decode: Decode) -> Decode:
    def checked(value: bytes) -> dict[str, Any]:
        if len(value) < CONFLUENT_HEAD_BYTES or value[0] != _ZERO:
            raise ValueError("no head of a schema registry")
        return decode(value[CONFLUENT_HEAD_BYTES:])

    return checked
