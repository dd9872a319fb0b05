"""The types and annotations by which a message describes its encoding in each version.

A message is a frozen struct with its fields in Kafka's order. A field's type is one of the names below, a struct, or a
list of either. `| None` means that Kafka allows null, and `Annotated[...]` adds versions, tags and nullability:

    rack: Annotated[String | None, since(1)] = None
    topics: Annotated[list[Topic] | None, nullable(2)] = []
    current_leader: Annotated[Leader, tagged(0), since(12)] = Leader()

Every field has Kafka's default, which is its value in versions without the field. The decoder and the encoder are
built from `fields_of` a message.
"""

import functools
import struct
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.kafkawire.primitives import Buffer

NO_UUID = bytes(16)
LAST_VERSION = 32_767  # a version is an int16


class Kind(msgspec.Struct, frozen=True):
    """An encoding without inner fields: with a format character of `struct` if the size is fixed, else only a name."""

    name: str
    format: str = ""


class Array(msgspec.Struct, frozen=True):
    """A list of one kind or one struct."""

    element: "Kind | type[msgspec.Struct]"


class Versions(msgspec.Struct, frozen=True):
    """The first and the last version that have a field."""

    first: int
    last: int = LAST_VERSION


class Nullable(msgspec.Struct, frozen=True):
    """The first version in which a field may be null, if the field itself is older."""

    first: int


class Tag(msgspec.Struct, frozen=True):
    """The number of a tagged field (KIP-482)."""

    number: int


Bool = Annotated[bool, Kind("bool", "?")]
Int8 = Annotated[int, Kind("int8", "b")]
Int16 = Annotated[int, Kind("int16", "h")]
Int32 = Annotated[int, Kind("int32", "i")]
Int64 = Annotated[int, Kind("int64", "q")]
Uint16 = Annotated[int, Kind("uint16", "H")]
Float64 = Annotated[float, Kind("float64", "d")]
Uuid = Annotated[bytes, Kind("uuid", "16s")]
String = Annotated[str, Kind("string")]
Bytes = Annotated[bytes, Kind("bytes")]
# Decoded as a view of the request; encoded from one buffer or several buffers in a row, without a copy.
Records = Annotated[Buffer | list[Buffer] | None, Kind("records")]


def since(version: int) -> Versions:
    """The field exists from this version on."""
    return Versions(version)


def versions(first: int, last: int) -> Versions:
    """The field exists from the first to the last of these versions."""
    return Versions(first, last)


def nullable(version: int) -> Nullable:
    """The field may be null from this version on, but not in its earlier versions."""
    return Nullable(version)


def tagged(number: int) -> Tag:
    """The field is a tagged field with this number; it is written only if it differs from its default."""
    return Tag(number)


Shape = Kind | Array | type[msgspec.Struct]


class Field(msgspec.Struct, frozen=True):
    """One field of a message, for all versions, as its annotation describes it."""

    name: str
    shape: Shape
    versions: Versions
    nullable_since: int
    tag: int | None
    default: Any  # an empty list means "a new empty list"


def in_version(field: Field, version: int) -> bool:
    """Whether this version has the field."""
    return field.versions.first <= version <= field.versions.last


def is_nullable(field: Field, version: int) -> bool:
    """Whether the field may be null in this version."""
    return version >= field.nullable_since


@functools.cache
def fields_of(message: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a message for all versions, in the order of its constructor."""
    hints = get_type_hints(message, include_extras=True)
    defaults = {field.name: _default(field) for field in msgspec.structs.fields(message)}
    return tuple(_field(name, hints[name], defaults[name]) for name in message.__struct_fields__)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    assert field.default_factory is list, f"field {field.name} has no default"
    return []


def _field(name: str, hint: Any, default: Any) -> Field:
    hint, annotations = _unwrap(hint)
    null_allowed = default is None
    if get_origin(hint) in (Union, types.UnionType) and not any(isinstance(each, Kind) for each in annotations):
        (hint,) = (choice for choice in get_args(hint) if choice is not types.NoneType)
        null_allowed = True
        hint, inner = _unwrap(hint)
        annotations = (*inner, *annotations)
    found = {type(each): each for each in annotations}
    existing: Versions = found.get(Versions, Versions(0))
    nullable_first = found[Nullable].first if Nullable in found else existing.first
    return Field(
        name=name,
        shape=_shape(hint, found.get(Kind)),
        versions=existing,
        nullable_since=nullable_first if null_allowed else LAST_VERSION + 1,
        tag=found[Tag].number if Tag in found else None,
        default=default,
    )


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__
    return hint, ()


def _shape(hint: Any, kind: Kind | None) -> Shape:
    if kind is not None:
        return kind
    if get_origin(hint) is list:
        inner, annotations = _unwrap(get_args(hint)[0])
        element = next((each for each in annotations if isinstance(each, Kind)), inner)
        return Array(element)
    assert issubclass(hint, msgspec.Struct), f"no encoding for {hint}"
    message: type[msgspec.Struct] = hint
    return message


def size_min(shape: Shape, version: int, flexible: bool) -> int:
    """The smallest size of a value of this shape; the count of an array is checked against it."""
    if isinstance(shape, Kind):
        if shape.format:
            return struct.calcsize(f">{shape.format}")
        return 1 if flexible else 2 if shape.name == "string" else 4
    if isinstance(shape, Array):
        return 1 if flexible else 4
    plain = [field for field in fields_of(shape) if field.tag is None and in_version(field, version)]
    return sum(_field_size_min(field, version, flexible) for field in plain) + flexible


def _field_size_min(field: Field, version: int, flexible: bool) -> int:
    if not isinstance(field.shape, Kind | Array) and is_nullable(field, version):
        return 1  # a nullable struct has a byte before it, which is negative for null
    return size_min(field.shape, version, flexible)


def has_records(message: type[msgspec.Struct]) -> bool:
    """Whether a message contains record bytes, at any depth."""
    for field in fields_of(message):
        shape = field.shape.element if isinstance(field.shape, Array) else field.shape
        if shape.name == "records" if isinstance(shape, Kind) else has_records(shape):
            return True
    return False


@functools.cache
def _arrays_of(message: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in fields_of(message) if isinstance(field.shape, Array))


def has_more_elements(message: msgspec.Struct, elements_max: int) -> bool:
    """Whether the arrays of a message, at any depth, have more elements together; it stops to count when they have."""
    return _elements_left(message, elements_max) < 0


def _elements_left(message: msgspec.Struct, left: int) -> int:
    for name in _arrays_of(type(message)):
        items = getattr(message, name)
        if not items:
            continue
        left -= len(items)
        if left < 0:
            return left
        if isinstance(items[0], msgspec.Struct) and _arrays_of(type(items[0])):
            for item in items:
                left = _elements_left(item, left)
                if left < 0:
                    return left
    return left
