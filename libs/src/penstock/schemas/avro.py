"""Records with an Avro schema, by fastavro.

The fast reader of fastavro is in C and does not limit its recursion: a deep value of a recursive schema ends the
process. So recursive schemas are read by the reader in Python, which fails with an exception. That one is a private
module (`fastavro._read_py`), and the version is pinned for it.
"""

import io
import json
import math
from collections.abc import Iterable
from typing import Any

import fastavro
from fastavro import _read_py
from fastavro.schema import SchemaParseException, UnknownType

from penstock.contracts.errors import Invalid
from penstock.schemas.json_values import json_value
from penstock.schemas.limits import SchemaLimits

# fastavro does not check what it reads: wrong bytes end with one of these.
_ERRORS = (ArithmeticError, AttributeError, EOFError, LookupError, RecursionError, TypeError, ValueError)


class AvroReader:
    """Reads the payloads of one schema."""

    def __init__(self, schema: str, referenced: Iterable[str], limits: SchemaLimits) -> None:
        """`Invalid` if it is no schema, or if its values could have no end."""
        named: dict[str, Any] = {}
        try:
            for each in referenced:
                fastavro.parse_schema(json.loads(each), named)
            parsed = fastavro.parse_schema(json.loads(schema), named)
            self._schema = fastavro.parse_schema(_complete(parsed, named, set()))
            self._shape = _Shape(named)
            is_endless = self._shape.bytes_min(self._schema) == math.inf
        except (SchemaParseException, UnknownType, *_ERRORS) as error:
            raise Invalid(f"its Avro schema cannot be read: {type(error).__name__}: {error}") from error
        if is_endless:
            raise Invalid("each value of its Avro schema contains itself")
        self._name = _name_of(self._schema)
        self._limits = limits
        self._read = _read_py.schemaless_reader if self._shape.is_recursive else fastavro.schemaless_reader

    def read(self, payload: bytes) -> tuple[str, Any]:
        """The name of the schema, and the value; `Invalid` if the payload does not fit it."""
        if self._shape.is_recursive and len(payload) > self._limits.recursive_bytes_max:
            raise Invalid(f"{len(payload)} bytes of a recursive schema: at most {self._limits.recursive_bytes_max}")
        source = io.BytesIO(payload)
        try:
            found = json_value(self._read(source, self._schema, None))
        except _ERRORS as error:
            raise Invalid(f"the payload does not fit its Avro schema: {type(error).__name__}: {error}") from error
        if source.tell() != len(payload):
            raise Invalid(f"the payload has {len(payload) - source.tell()} bytes after its Avro value")
        return self._name, found


def _complete(schema: Any, named: dict[str, Any], defined: set[str]) -> Any:
    """A parsed schema in which the first use of a name is its definition, as the reader needs it."""
    if isinstance(schema, str):
        return _complete(named[schema], named, defined) if schema in named and schema not in defined else schema
    if isinstance(schema, list):
        return [_complete(each, named, defined) for each in schema]
    found = {name: each for name, each in schema.items() if not name.startswith("__")}  # fastavro's own notes
    kind = found["type"]
    if "name" in found:
        defined.add(found["name"])
    if kind in ("record", "error"):
        found["fields"] = [{**each, "type": _complete(each["type"], named, defined)} for each in found["fields"]]
    elif kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        found[part] = _complete(found[part], named, defined)
    elif not isinstance(kind, str):
        found["type"] = _complete(kind, named, defined)
    return found


def _name_of(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name") or _name_of(schema.get("type")))
    return schema if isinstance(schema, str) else "union"


class _Shape:
    """The least size of the values of a schema, and whether they can be nested without limit.

    `Invalid` for a list whose items take no bytes: a few bytes could make a list without end.
    """

    def __init__(self, named: dict[str, Any]) -> None:
        self.is_recursive = False
        self._named = named
        self._open: set[str] = set()
        self._known: dict[str, float] = {}

    def bytes_min(self, schema: Any) -> float:
        if isinstance(schema, str):
            return self._of_name(schema)
        if isinstance(schema, list):
            return 1 + min(self.bytes_min(each) for each in schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._of_record(schema)
        if kind == "enum":
            return 1
        if kind == "fixed":
            return int(schema["size"])
        if kind == "array":
            if self.bytes_min(schema["items"]) == 0:
                raise Invalid("it has a list whose items take no bytes")
            return 1
        if kind == "map":
            self.bytes_min(schema["values"])
            return 1
        return self.bytes_min(kind)

    def _of_name(self, name: str) -> float:
        if name in self._open:
            self.is_recursive = True
            return math.inf
        if name in self._known:
            return self._known[name]
        if name in self._named:
            return self.bytes_min(self._named[name])
        return 0 if name == "null" else 1

    def _of_record(self, schema: Any) -> float:
        name = schema["name"]
        self._open.add(name)
        found = sum(self.bytes_min(field["type"]) for field in schema["fields"])
        self._open.discard(name)
        self._known[name] = found
        return found
