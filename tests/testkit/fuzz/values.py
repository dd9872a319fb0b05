"""Random requests of one API and version, made from the schema. The same random source makes the same requests."""

import random
from typing import Any

import msgspec

from penstock.kafkawire.api_description import Api
from penstock.kafkawire.records import Record, build_batch
from penstock.kafkawire.schema import Array, Field, Kind, Shape, fields_of, in_version, is_nullable

TOPICS = [f"fuzz-{number}" for number in range(6)]
GROUPS = [f"group-{number}" for number in range(4)]
# Names that exist, or mean something in some field, and hostile ones.
TEXTS = [
    *TOPICS * 3,
    *GROUPS * 3,
    *["", "range", "consumer", "cleanup.policy", "compact", "retention.ms", "1000", "client-id", "all", ".", ".*"],
    *["é" * 50, "\0", "a" * 249, "b" * 250, "c" * 20_000, "../../etc/passwd", "(a+)+$", "%s%n"],
]
TERSE_TEXTS = [*TOPICS, *GROUPS, "", "none"]
NUMBERS = [0, 0, 0, 1, 1, 1, 2, 3, 4, 7, 10, 100, 500, 5_000, -1, -1, -2, 32_767, 2**31 - 1, -(2**31), 2**62, -(2**63)]
NUMBER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ELEMENTS = [0, 1, 1, 1, 2, 3, 8]
MANY_ELEMENTS = [1_000, 10_000, 60_000, 240_000]
ELEMENTS_IN_ALL_MAX = 240_000  # of one request, a little less than the gateway's limit


class Requests:
    """Makes requests, each valid for its version; their values are often wrong for the handler."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._is_terse = False

    def any(self, api: Api, version: int) -> Any:
        """A request with few elements."""
        return self._struct(api.request, version, 0)

    def with_many_elements(self, api: Api, version: int) -> Any:
        """A request with one very long array, at any depth; without one if the API has no arrays."""
        self._is_terse = True
        grown = self._grown(self.any(api, version), version, self._chance.choice(MANY_ELEMENTS))
        self._is_terse = False
        return grown

    def _grown(self, message: Any, version: int, count: int) -> Any:
        arrays = [
            field for field in fields_of(type(message)) if isinstance(field.shape, Array) and in_version(field, version)
        ]
        if not arrays:
            return message
        field = self._chance.choice(arrays)
        assert isinstance(field.shape, Array)
        element = self._element(field.shape.element, version, 1)
        is_inner = isinstance(element, msgspec.Struct) and self._chance.random() < 0.6
        items = [self._grown(element, version, count)] if is_inner else self._many(element, count)
        return msgspec.structs.replace(message, **{field.name: items})

    def _many(self, element: Any, count: int) -> list[Any]:
        """Equal elements, or elements whose first number or text counts up."""
        count = min(count, ELEMENTS_IN_ALL_MAX // _elements(element))
        if not isinstance(element, msgspec.Struct) or self._chance.random() < 0.3:
            return [element] * count
        counted = [field for field in fields_of(type(element)) if isinstance(field.shape, Kind)]
        field = next((field for field in counted if field.shape.name in ("int32", "int64", "string")), None)
        if field is None:
            return [element] * count
        kind = str if field.shape.name == "string" else int
        return [msgspec.structs.replace(element, **{field.name: kind(number)}) for number in range(count)]

    def _struct(self, message: type[msgspec.Struct], version: int, depth: int) -> Any:
        present = [field for field in fields_of(message) if in_version(field, version)]
        return message(**{field.name: self._field(field, version, depth) for field in present})

    def _field(self, field: Field, version: int, depth: int) -> Any:
        chance = self._chance
        if field.name == "validate_only":  # quotas and settings of all clients stay as they are
            return True
        if field.tag is not None and chance.random() < 0.5:
            return field.default
        if is_nullable(field, version) and chance.random() < 0.15:
            return None
        if isinstance(field.shape, Array):
            count = 1 if depth > 3 or self._is_terse else chance.choice(ELEMENTS)
            return [self._element(field.shape.element, version, depth + 1) for _ in range(count)]
        if field.name.endswith(("wait_ms", "timeout_ms")):
            return chance.choice([0, 1, 100, 1_000, -1, 2**31 - 1])
        return self._element(field.shape, version, depth + 1)

    def _element(self, shape: Shape, version: int, depth: int) -> Any:
        if not isinstance(shape, Kind):
            assert not isinstance(shape, Array)
            return self._struct(shape, version, depth)
        chance = self._chance
        if shape.name in NUMBER_BITS:
            limit = 2 ** (NUMBER_BITS[shape.name] - 1)
            number = chance.choice(NUMBERS) if chance.random() < 0.9 else chance.randrange(-limit, limit)
            return min(max(number, -limit), limit - 1)
        if shape.name == "records":
            return self._records()
        return {
            "bool": lambda: chance.random() < 0.5,
            "uint16": lambda: chance.choice([0, 1, 9092, 65_535]),
            "float64": lambda: chance.choice([0.0, 1.0, -1.0, 1e300, float("nan"), float("inf")]),
            "uuid": lambda: bytes(16) if chance.random() < 0.5 else chance.randbytes(16),
            "string": lambda: chance.choice(TERSE_TEXTS if self._is_terse else TEXTS),
            "bytes": lambda: chance.randbytes(chance.choice([0, 1, 10] if self._is_terse else [0, 1, 10, 1_000])),
        }[shape.name]()

    def _records(self) -> bytes:
        chance = self._chance
        if self._is_terse:
            return build_batch([Record(value=b"v")])
        if chance.random() < 0.2:
            return chance.randbytes(chance.choice([0, 1, 60, 61, 200, 5_000]))
        many = chance.choice([1, 1, 1, 10, 1_000])
        records = [Record(value=b"v" * chance.choice([0, 10, 1_000]), offset_delta=number) for number in range(many)]
        batch = bytearray(
            build_batch(
                records,
                codec=chance.randrange(5),
                producer_id=chance.choice([-1, -1, 0, 1, 1_000]),
                producer_epoch=chance.choice([-1, 0, 0, 1]),
                base_sequence=chance.choice([-1, 0, 0, 1, 2**31 - 1]),
                transactional=chance.random() < 0.1,
                control=chance.random() < 0.05,
            )
        )
        if chance.random() < 0.3:
            batch[chance.randrange(len(batch))] ^= 1 << chance.randrange(8)
        return bytes(batch)


def _elements(element: Any) -> int:
    """The number of elements that an array has for this one, with those inside it."""
    if not isinstance(element, msgspec.Struct):
        return 1
    values = [getattr(element, name) for name in element.__struct_fields__]
    inner = [each for value in values if isinstance(value, list) for each in value]
    inner += [value for value in values if isinstance(value, msgspec.Struct)]
    return 1 + sum(map(_elements, inner))
