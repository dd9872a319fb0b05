"""Messages for tests, built from the schema: fixed samples and a Hypothesis strategy for each version of each."""

from itertools import count
from typing import Any

import msgspec
from hypothesis import strategies as st

from penstock.kafkawire.api import API_TABLE, Api, decode_request, decode_response, encode_request, encode_response
from penstock.kafkawire.schema import Array, Field, Kind, Shape, fields_of, in_version, is_nullable

SAMPLES = ("full", "nulls", "bare")
NUMBER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Case(msgspec.Struct, frozen=True):
    """One version of one message."""

    api: Api
    version: int
    is_request: bool

    @property
    def message(self) -> type[msgspec.Struct]:
        return self.api.request if self.is_request else self.api.response

    @property
    def flexible(self) -> bool:
        return self.version >= self.api.flexible_since

    @property
    def label(self) -> str:
        return f"{self.message.__name__} {self.version}"

    def encode(self, message: msgspec.Struct) -> bytes:
        if self.is_request:
            return encode_request(self.api.key, self.version, message)
        return b"".join(encode_response(self.api.key, self.version, message))

    def decode(self, data: Any) -> Any:
        return (decode_request if self.is_request else decode_response)(self.api.key, self.version, data)


CASES = [
    Case(api, version, is_request)
    for api in API_TABLE.values()
    for version in range(api.min_version, api.max_version + 1)
    for is_request in (True, False)
]


def sample(case: Case, name: str) -> Any:
    """The sample with this name.

    "full" has every field of the version, each with a different value. "nulls" has null for every nullable text and
    bytes field. "bare" has null for every nullable field, empty lists, and no tagged fields.
    """
    if name == "bare":
        return _struct(case.message, case.version, _bare)
    numbers = count(1)

    def value(field: Field, version: int) -> Any:
        if name == "nulls" and is_nullable(field, version) and isinstance(field.shape, Kind):
            return None
        return element(field.shape, version)

    def element(shape: Shape, version: int) -> Any:
        if isinstance(shape, Array):
            return [element(shape.element, version) for _ in range(2 if name == "full" else 1)]
        return _distinct(shape, next(numbers)) if isinstance(shape, Kind) else _struct(shape, version, value)

    return _struct(case.message, case.version, value)


def _struct(message: type[msgspec.Struct], version: int, value: Any) -> Any:
    present = [field for field in fields_of(message) if in_version(field, version)]
    return message(**{field.name: value(field, version) for field in present})


def _distinct(kind: Kind, number: int) -> Any:
    if kind.name in (*NUMBER_BITS, "uint16"):
        return number % 100 + 1
    start = number % 200
    return {
        "bool": True,
        "float64": number + 0.25,
        "string": f"söme {number}",
        "uuid": bytes(range(start, start + 16)),
        "bytes": b"%d bytes" % number,
        "records": b"%d bytes" % number,
    }[kind.name]


def _bare(field: Field, version: int) -> Any:
    if is_nullable(field, version) and field.tag is None:
        return None
    return [] if isinstance(field.shape, Array) else field.default


def messages(case: Case) -> st.SearchStrategy[Any]:
    """A strategy for any message that is valid in the version."""
    return _structs(case.message, case.version)


def _structs(message: type[msgspec.Struct], version: int) -> st.SearchStrategy[Any]:
    present = [field for field in fields_of(message) if in_version(field, version)]
    return st.builds(message, **{field.name: _fields(field, version) for field in present})


def _fields(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _values(field.shape, version)
    return st.none() | values if is_nullable(field, version) else values


def _values(shape: Shape, version: int) -> st.SearchStrategy[Any]:
    if isinstance(shape, Array):
        return st.lists(_values(shape.element, version), max_size=3)
    if not isinstance(shape, Kind):
        return _structs(shape, version)
    if shape.name in NUMBER_BITS:
        limit = 2 ** (NUMBER_BITS[shape.name] - 1)
        return st.integers(-limit, limit - 1)
    return {
        "bool": st.booleans(),
        "uint16": st.integers(0, 2**16 - 1),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=200),
        "bytes": st.binary(max_size=200),
        "records": st.binary(max_size=300),
    }[shape.name]
