"""Durations in configurations are those of Java's `Duration.parse`; share groups accept those that are not negative."""

import pytest

from penstock.contracts.configs.durations import parse_duration_ms
from penstock.contracts.configs.groups import group_validation_errors

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1H", HOUR_MS),
        ("pt1h", HOUR_MS),
        ("P2D", 48 * HOUR_MS),
        ("P1DT2H3M4.5S", 26 * HOUR_MS + 184_500),
        ("PT90M", HOUR_MS * 3 // 2),
        ("PT1,25S", 1_250),
        ("PT2.S", 2_000),
        ("PT0.0001S", 1),
        ("PT0S", 0),
        ("+PT1S", 1_000),
        ("PT1H-30M", HOUR_MS // 2),
        ("PT-0.5S", -500),
        ("-PT-1S", 1_000),
        ("-P1D", -24 * HOUR_MS),
        ("P106751991167300D", 106_751_991_167_300 * 24 * HOUR_MS),
    ],
)
def test_a_duration(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "P1Y", "P1W", "P1M", "PT5", "1H", "PT1S ", "PT,5S", "P106751991167301D", "P\uff11D"],
)
def test_no_duration(text: str) -> None:
    assert parse_duration_ms(text) is None


@pytest.mark.parametrize("value", ["earliest", "latest", "by_duration:PT1H", "by_duration:pt1h", "by_duration:PT0S"])
def test_a_reset_of_share_groups(value: str) -> None:
    assert group_validation_errors({"share.auto.offset.reset": value}) == []


@pytest.mark.parametrize(
    "value",
    ["none", "by_duration", "by_duration:", "BY_DURATION:PT1H", "by_duration:-PT1H", "by_duration:1h", "Latest"],
)
def test_no_reset_of_share_groups(value: str) -> None:
    (error,) = group_validation_errors({"share.auto.offset.reset": value})
    assert error == (
        "share.auto.offset.reset must be latest, earliest, or by_duration: and a duration such as PT1H or P2D, "
        f"not below 0: {value!r}"
    )
