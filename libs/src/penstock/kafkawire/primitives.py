"""Variable-length numbers and sections of tagged fields: the parts of Kafka's encoding that `struct` cannot read."""

from collections.abc import Iterable

from penstock.kafkawire.errors import DecodeError

Buffer = bytes | bytearray | memoryview

# Kafka reads at most five bytes for a 32-bit number and ten for a 64-bit number; longer ones are invalid.
UVARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
# Of one message, as in Kafka 4.4. Only a hostile client sends many: they are skipped one by one.
TAGGED_FIELDS_MAX = 10_000

_SHORT = tuple(bytes([value]) for value in range(128))


def read_uvarint(view: Buffer, position: int) -> tuple[int, int]:
    """An unsigned number and the position after it; `IndexError` if bytes are missing."""
    first = view[position]
    if first < 128:
        return first, position + 1
    return read_uvarint_rest(view, position + 1, first)


def read_uvarint_rest(view: Buffer, position: int, first: int) -> tuple[int, int]:
    """The number whose `first` byte (128 or more) was already read, and the position after it."""
    return _read_groups(view, position, first, UVARINT_BYTES_MAX)


def read_varlong(view: Buffer, position: int) -> tuple[int, int]:
    """A signed (zigzag) number of up to 64 bits and the position after it; `IndexError` if bytes are missing."""
    value = view[position]
    position += 1
    if value > 127:
        value, position = _read_groups(view, position, value, VARLONG_BYTES_MAX)
    return (value >> 1) ^ -(value & 1), position


def _read_groups(view: Buffer, position: int, first: int, bytes_max: int) -> tuple[int, int]:
    value = first & 127
    for shift in range(7, 7 * bytes_max, 7):
        byte = view[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise DecodeError(f"variable-length number of more than {bytes_max} bytes")


def uvarint(value: int) -> bytes:
    """An unsigned number in groups of seven bits, lowest first."""
    if value < 128:
        return _SHORT[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varlong(value: int) -> bytes:
    """A signed number of up to 64 bits in zigzag encoding: small numbers of both signs have few bytes."""
    return uvarint((value << 1) ^ (value >> 63))


def skip_tags(view: Buffer, position: int, count: int, allowed: int) -> tuple[int, int]:
    """The position after a section of unknown tagged fields (KIP-482), and how many more of them are allowed.

    `count` is the section's first byte.
    """
    if count > 127:
        count, position = read_uvarint_rest(view, position, count)
    if count > allowed:
        raise DecodeError(f"{count} tagged fields, allowed are {allowed} more")
    for _ in range(count):
        _, position = read_uvarint(view, position)
        size_bytes, position = read_uvarint(view, position)
        position += size_bytes
    return position, allowed - count


def tag_section(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields, which must be in ascending order of their tags."""
    fragments = [b""]
    for tag, data in fields:
        fragments += uvarint(tag), uvarint(len(data)), data
    fragments[0] = uvarint(len(fragments) // 3)
    return b"".join(fragments)
