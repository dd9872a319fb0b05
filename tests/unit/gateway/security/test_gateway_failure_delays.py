"""Delays of failed logins: they grow with each failure of an address, shrink with time, and take little memory."""

import pytest

from penstock_gateway.security.login.failure_delays import DelayLimits, FailureDelays

LIMITS = DelayLimits()


def test_each_failure_of_an_address_doubles_the_delay_up_to_a_limit() -> None:
    delays = FailureDelays(LIMITS)
    found = [delays.record("192.0.2.1", 0.0) for _ in range(10)]
    assert found[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert found[-1] == LIMITS.delay_s_max


def test_ten_thousand_failures_still_have_the_longest_delay() -> None:
    delays = FailureDelays(LIMITS)
    assert {delays.record("192.0.2.1", 0.0) for _ in range(10_000)} >= {LIMITS.delay_s_max}
    assert delays.record("192.0.2.1", 0.0) == LIMITS.delay_s_max


def test_other_addresses_are_not_delayed_by_it() -> None:
    delays = FailureDelays(LIMITS)
    for _ in range(10):
        delays.record("192.0.2.1", 0.0)
    assert delays.record("192.0.2.2", 0.0) == LIMITS.first_s


def test_failures_count_less_with_time() -> None:
    delays = FailureDelays(LIMITS)
    for _ in range(10):
        delays.record("192.0.2.1", 0.0)
    assert delays.record("192.0.2.1", 10 * LIMITS.half_life_s) == pytest.approx(LIMITS.first_s, rel=0.02)


@pytest.mark.parametrize(
    ("one", "other"),
    [("2001:db8::1", "2001:db8::ffff:2"), ("::ffff:192.0.2.1", "192.0.2.1"), ("not an address", "not an address")],
)
def test_addresses_of_one_client_count_together(one: str, other: str) -> None:
    delays = FailureDelays(LIMITS)
    delays.record(one, 0.0)
    assert delays.record(other, 0.0) == 2 * LIMITS.first_s


def test_two_networks_of_ipv6_count_apart() -> None:
    delays = FailureDelays(LIMITS)
    delays.record("2001:db8:0:1::1", 0.0)
    assert delays.record("2001:db8:0:2::1", 0.0) == LIMITS.first_s


def test_the_table_is_bounded_and_keeps_the_newest() -> None:
    delays = FailureDelays(DelayLimits(addresses_max=100))
    for number in range(1_000):
        delays.record(f"10.0.{number // 250}.{number % 250}", 0.0)
    assert len(delays) == 100
    assert delays.record("10.0.3.249", 0.0) == 0.2
    assert delays.record("10.0.0.0", 0.0) == 0.1
