"""The decoder of OpenTelemetry's metrics: gauges, sums, damaged and hostile data."""

import contextlib
import random

import pytest
from hypothesis import given, strategies as st

from penstock.kafkawire.errors import DecodeError
from penstock_gateway.telemetry.otlp import Kind, Point, decode_points
from tests.unit.gateway.telemetry.metrics_data import field, gauge, metrics_data, point, total

FIELDS_MAX = 10_000
PUSHED = metrics_data(
    gauge("lag", point(3, topic="t", partition="0"), point(7.5, topic="t", partition="1")),
    total("sent.total", point(41)),
    total("sent.whole", point(1_000), temporality=2),
    total("in.flight", point(-5), temporality=2, monotonic=False),
)


def decoded(data: bytes, fields_max: int = FIELDS_MAX) -> list[Point]:
    return list(decode_points(data, fields_max))


def test_gauges_and_sums_are_decoded_with_their_kind() -> None:
    assert decoded(PUSHED) == [
        Point("lag", Kind.GAUGE, 3.0),
        Point("lag", Kind.GAUGE, 7.5),
        Point("sent.total", Kind.DELTA, 41.0),
        Point("sent.whole", Kind.TOTAL, 1_000.0),
        Point("in.flight", Kind.GAUGE, -5.0),
    ]


def test_the_name_may_come_after_the_data() -> None:
    metric = field(5, field(1, point(1))) + field(1, "late")
    assert decoded(metrics_data(metric)) == [Point("late", Kind.GAUGE, 1.0)]


def test_other_kinds_of_metrics_and_unknown_fields_are_skipped() -> None:
    histogram = field(1, "h") + field(9, field(1, point(1)))
    falling = total("f", point(1), monotonic=False)
    without_number = gauge("g", field(8, 1))
    unknown = field(99, "x") + field(98, 1) + field(97, 1.5) + b"\xe5\x05\0\0\0\0"
    assert decoded(unknown + metrics_data(histogram, falling, without_number, unknown)) == []


def test_empty_data_has_no_metrics() -> None:
    assert decoded(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # no length
        b"\x0a\x05abc",  # too short
        b"\x0b",  # a group begins: no longer in use
        b"\x0a" + b"\xff" * 11,  # a number without an end
        metrics_data(field(1, b"\xff\xfe")),  # a name that is no text
    ],
)
def test_damaged_data_is_rejected(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decoded(data)


def test_data_with_too_many_fields_is_rejected() -> None:
    with pytest.raises(DecodeError):
        decoded(b"\x0a\x00" * 1_001, fields_max=1_000)
    assert decoded(b"\x0a\x00" * 1_000, fields_max=1_000) == []


@given(st.binary(max_size=60))
def test_random_bytes_raise_nothing_but_decode_errors(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decoded(data)


def test_changed_bytes_raise_nothing_but_decode_errors() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        noisy = bytearray(PUSHED)
        for _ in range(chance.randint(1, 4)):
            noisy[chance.randrange(len(noisy))] = chance.randrange(256)
        with contextlib.suppress(DecodeError):
            decoded(bytes(noisy))
