"""Decodes OpenTelemetry's MetricsData (protobuf), as far as Kafka clients use it: gauges and sums of numbers. Pure.

Unknown fields are skipped, and so are histograms, summaries, and the attributes of data points. A number of
fields limits the work: each field costs time, and may be as small as two bytes.
"""

import enum
import struct
from collections.abc import Iterator

import msgspec

from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer

VARINT, FIXED_64, LENGTH, FIXED_32 = 0, 1, 2, 5  # the wire types of protobuf; the other two do not occur
VARINT_BYTES_MAX = 10
DELTA_TEMPORALITY, CUMULATIVE_TEMPORALITY = 1, 2
_FIXED_BYTES = {FIXED_64: 8, FIXED_32: 4}
_DOUBLE, _INT_64 = struct.Struct("<d"), struct.Struct("<q")


class Kind(enum.Enum):
    """The meaning of a number."""

    GAUGE = enum.auto()  # the present value
    TOTAL = enum.auto()  # the sum since the start of the client
    DELTA = enum.auto()  # the increase since the last push


class Point(msgspec.Struct, frozen=True):
    """One number of one metric."""

    name: str
    kind: Kind
    value: float


class _Fields:
    """Reads the fields of messages, up to a number of fields in all of them."""

    def __init__(self, fields_max: int) -> None:
        self._left = fields_max

    def of(self, data: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
        """The fields of one message: number, wire type, the value of a varint, the bytes of any other."""
        position, end = 0, len(data)
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise DecodeError("too many fields in the metrics of a client")
            key, position = _varint(data, position)
            number, wire_type, value, size = key >> 3, key & 7, 0, 0
            if wire_type == VARINT:
                value, position = _varint(data, position)
            elif wire_type == LENGTH:
                size, position = _varint(data, position)
            elif wire_type in _FIXED_BYTES:
                size = _FIXED_BYTES[wire_type]
            else:
                raise DecodeError(f"wire type {wire_type} in the metrics of a client")
            if size > end - position:
                raise DecodeError(f"a field of {size} bytes, but only {end - position} bytes follow")
            yield number, wire_type, value, data[position : position + size]
            position += size

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        """The inner messages in the fields with this number."""
        for number, wire_type, _, inner in self.of(data):
            if number == wanted and wire_type == LENGTH:
                yield inner


def decode_points(data: Buffer, fields_max: int) -> Iterator[Point]:
    """The numbers of all metrics in a MetricsData; raises only `DecodeError`."""
    fields = _Fields(fields_max)
    for resource_metrics in fields.messages(memoryview(data), 1):
        for scope_metrics in fields.messages(resource_metrics, 2):
            for metric in fields.messages(scope_metrics, 2):
                yield from _points_of(fields, metric)


def _points_of(fields: _Fields, metric: memoryview) -> Iterator[Point]:
    name, gauge, total = "", None, None
    for number, wire_type, _, inner in fields.of(metric):
        if wire_type == LENGTH and number == 1:
            name = _text(inner)
        elif wire_type == LENGTH and number == 5:
            gauge = inner
        elif wire_type == LENGTH and number == 7:
            total = inner
    if gauge is not None:
        yield from _numbers(fields, name, Kind.GAUGE, gauge)
    kind = None if total is None else _kind_of(fields, total)
    if total is not None and kind is not None:
        yield from _numbers(fields, name, kind, total)


def _kind_of(fields: _Fields, total: memoryview) -> Kind | None:
    """The kind of a sum; None for differences of one that may fall, which have no use without its start."""
    temporality, is_monotonic = 0, False
    for number, wire_type, value, _ in fields.of(total):
        if wire_type == VARINT and number == 2:
            temporality = value
        elif wire_type == VARINT and number == 3:
            is_monotonic = bool(value)
    if temporality == CUMULATIVE_TEMPORALITY:
        return Kind.TOTAL if is_monotonic else Kind.GAUGE
    return Kind.DELTA if temporality == DELTA_TEMPORALITY and is_monotonic else None


def _numbers(fields: _Fields, name: str, kind: Kind, points: memoryview) -> Iterator[Point]:
    """The numbers in the NumberDataPoints of a gauge or a sum."""
    for point in fields.messages(points, 1):
        for number, wire_type, _, inner in fields.of(point):
            if wire_type == FIXED_64 and number == 4:
                yield Point(name, kind, _DOUBLE.unpack(inner)[0])
            elif wire_type == FIXED_64 and number == 6:
                yield Point(name, kind, float(_INT_64.unpack(inner)[0]))


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"the name of a metric is no text: {error.reason}") from error


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, and the position behind it."""
    value = shift = 0
    for byte in data[position : position + VARINT_BYTES_MAX]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number without an end in the metrics of a client")
