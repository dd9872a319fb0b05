"""Encodes OpenTelemetry's MetricsData, field by field, as the protobuf library does."""

import struct


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def field(number: int, value: int | float | bytes | str) -> bytes:
    """A field as varint, double, or bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def point(value: float | int, **attributes: str) -> bytes:
    """A NumberDataPoint with its times, and the attributes in front."""
    named = [field(7, field(1, name) + field(2, field(1, text))) for name, text in attributes.items()]
    times = b"".join(varint(number << 3 | 1) + struct.pack("<Q", 1_700_000_000_000_000_000) for number in (2, 3))
    number = field(4, value) if isinstance(value, float) else varint(6 << 3 | 1) + struct.pack("<q", value)
    return b"".join(named) + times + number


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name) + field(5, b"".join(field(1, each) for each in points))


def total(name: str, *points: bytes, temporality: int = 1, monotonic: bool = True) -> bytes:
    """A Sum; temporality 1 means deltas, 2 the whole since the start."""
    kind = field(2, temporality) + (field(3, 1) if monotonic else b"")
    return field(1, name) + field(7, b"".join(field(1, each) for each in points) + kind)


def metrics_data(*metrics: bytes) -> bytes:
    """One resource with one scope, as Kafka clients send it."""
    scope = field(1, field(1, "org.apache.kafka")) + b"".join(field(2, each) for each in metrics)
    return field(1, field(1, field(1, b"")) + field(2, scope))
