"""The words with which users name positions and partitions."""

from datetime import datetime

import pytest

from penstock.cli.groups.reading import assignment_text
from penstock.cli.groups.resetting import parse_place
from penstock.cli.kafka.offsets import Position, parse_partition, parse_position
from penstock.contracts.errors import Invalid
from tests.testkit.fakes.clock import ManualClock

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position(word="earliest")),
        ("latest", Position(word="latest")),
        ("0", Position(offset=0)),
        ("12", Position(offset=12)),
        ("+5", Position(shift=5)),
        ("-5", Position(shift=-5)),
        ("30s", Position(time_ms=NOW_MS - 30_000)),
        ("15m", Position(time_ms=NOW_MS - 900_000)),
        ("2h", Position(time_ms=NOW_MS - 7_200_000)),
        ("7d", Position(time_ms=NOW_MS - 604_800_000)),
        ("2023-11-14T22:13:20+00:00", Position(time_ms=NOW_MS)),
        ("2023-11-14T22:13:20.5Z", Position(time_ms=NOW_MS + 500)),
        ("2023-11-14", Position(time_ms=int(datetime(2023, 11, 14).timestamp() * 1000))),
    ],
)
def test_a_position_is_read(text: str, position: Position) -> None:
    assert parse_position(text, ManualClock(0, NOW_MS)) == position


@pytest.mark.parametrize("text", ["", "first", "5x", "--5", "+", "1.5", "2023-13-01", "1 h"])
def test_anything_else_is_no_position(text: str) -> None:
    with pytest.raises(Invalid, match="a position is earliest, latest"):
        parse_position(text)


@pytest.mark.parametrize("text", ["9" * 5_000, "-" + "9" * 5_000, "9" * 20])
def test_a_number_of_very_many_digits_is_no_position(text: str) -> None:
    with pytest.raises(Invalid, match="not a position: ") as failed:
        parse_position(text)
    assert len(str(failed.value)) < 400


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "0001-01-02T00:00Z", "99999d"])
def test_a_time_before_1970_is_the_first_one(text: str) -> None:
    """In Kafka's requests, -1 is the latest offset and -2 the earliest one."""
    assert parse_position(text, ManualClock(0, NOW_MS)) == Position(time_ms=0)


def test_a_partition_has_a_number_or_none() -> None:
    assert [parse_partition(text) for text in ("orders", "orders/3", "a.b_c-d:0")] == [
        *(("orders", None), ("orders", 3), ("a.b_c-d", 0))
    ]
    for text in ("", "orders/", "orders/x", "orders/1/2"):
        with pytest.raises(Invalid, match="a partition is TOPIC or TOPIC/NUMBER"):
            parse_partition(text)


def test_a_place_has_an_offset() -> None:
    assert parse_place("orders/3@17") == (("orders", 3), 17)
    for text in ("orders@1", "orders/3", "orders/3@", "orders/3@-1", "@1"):
        with pytest.raises(Invalid):
            parse_place(text)


def test_an_assignment_shows_ranges() -> None:
    assert assignment_text({"b": [0], "a": [7, 0, 1, 2], "c": []}) == ["a/0-2,7", "b/0"]
