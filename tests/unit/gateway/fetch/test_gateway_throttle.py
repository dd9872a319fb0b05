"""Catch-up reads are throttled while other clients tail, and more if new data arrives sooner."""

import asyncio
from collections import Counter

import pytest

from penstock.contracts.errors import Invalid
from penstock_gateway.config import GatewayConfig
from penstock_gateway.fetch.catch_up_throttle import RATE_MIN, CatchUpSlot, CatchUpThrottle
from penstock_gateway.fetch.limits import MIB, ThrottleLimits
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time

LIMITS = ThrottleLimits()
READS = 40
TIMEOUT_S = 1.0


def active(bytes_per_second: int) -> CatchUpThrottle:
    """A throttle while a client tails."""
    throttle = CatchUpThrottle(bytes_per_second, VirtualClock(), LIMITS)
    throttle.record_tailing_read()
    return throttle


async def seconds_for(throttle: CatchUpThrottle, size_bytes: int) -> float:
    """How long one connection takes to read these bytes MiB by MiB."""
    began_s = asyncio.get_running_loop().time()
    slot = CatchUpSlot()
    for _ in range(size_bytes // MIB):
        assert await throttle.wait(slot, MIB, TIMEOUT_S)
    assert await throttle.wait(slot, 0, TIMEOUT_S)
    return asyncio.get_running_loop().time() - began_s


@in_virtual_time
async def test_while_no_client_tails_catch_up_reads_wait_for_nothing() -> None:
    throttle = CatchUpThrottle(MIB, VirtualClock(), LIMITS)
    assert not throttle.is_active
    assert await seconds_for(throttle, READS * MIB) == 0


@in_virtual_time
async def test_while_a_client_tails_catch_up_reads_have_the_rate_that_was_set() -> None:
    throttle = active(8 * MIB)
    assert throttle.is_active
    assert await seconds_for(throttle, READS * MIB) == pytest.approx(READS / 8)


@in_virtual_time
async def test_the_older_new_data_is_on_arrival_the_faster_are_catch_up_reads() -> None:
    throttle = active(0)
    assert throttle.bytes_per_second == LIMITS.bytes_per_second_min
    throttle.record_new_data(0.25, 1)
    assert throttle.bytes_per_second == pytest.approx(0.25 * LIMITS.bytes_per_second_per_age_s)
    for _ in range(200):
        throttle.record_new_data(0.0, 1)
    assert throttle.bytes_per_second == LIMITS.bytes_per_second_min


@in_virtual_time
async def test_a_reader_that_fell_behind_the_writers_can_catch_up() -> None:
    throttle = active(0)
    written = 40 * MIB
    for _ in range(60):
        await asyncio.sleep(1)
        throttle.record_new_data(0.001, written)
    assert 1.5 * written < throttle.bytes_per_second < 2.5 * written
    await asyncio.sleep(60)
    assert throttle.bytes_per_second == LIMITS.bytes_per_second_min


@in_virtual_time
async def test_a_client_that_stopped_tailing_delays_no_read_after_a_while_even_with_a_late_place() -> None:
    throttle, slot = active(RATE_MIN), CatchUpSlot()
    assert await throttle.wait(slot, 100 * MIB, TIMEOUT_S)
    assert not await throttle.wait(slot, MIB, TIMEOUT_S)
    await asyncio.sleep(LIMITS.tailed_s)
    assert not throttle.is_active
    assert await throttle.wait(slot, MIB, 0)
    throttle.record_tailing_read()
    assert await throttle.wait(slot, MIB, 0)


@in_virtual_time
async def test_no_read_waits_longer_than_its_timeout_and_all_have_the_same() -> None:
    throttle = active(8 * MIB)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 60
    got: Counter[int] = Counter()

    async def catch_up(number: int) -> None:
        slot = CatchUpSlot()
        while loop.time() < end_s:
            asked_s = loop.time()
            got[number] += await throttle.wait(slot, MIB, TIMEOUT_S)
            assert loop.time() - asked_s <= TIMEOUT_S + 1e-6
            throttle.record_tailing_read()
            await asyncio.sleep(0.005)

    await asyncio.gather(*(catch_up(number) for number in range(READS)))
    assert sum(got.values()) == pytest.approx(60 * 8, rel=0.05)
    assert max(got.values()) - min(got.values()) <= 2


@in_virtual_time
async def test_a_read_with_a_timeout_of_zero_gets_its_place_too() -> None:
    throttle, eager, other = active(MIB), CatchUpSlot(), CatchUpSlot()
    assert await throttle.wait(other, MIB, TIMEOUT_S)
    got = 0
    for _ in range(100):
        got += await throttle.wait(eager, MIB, 0)
        await throttle.wait(other, MIB, 0.1)
        throttle.record_tailing_read()
    assert got == pytest.approx(5, abs=1)


@pytest.mark.parametrize("rate", [1, RATE_MIN - 1])
def test_a_rate_that_is_too_low_for_any_answer_is_rejected(rate: int) -> None:
    with pytest.raises(Invalid, match=f"history_bytes_per_second must be 0 or at least {RATE_MIN}: {rate}"):
        GatewayConfig(history_bytes_per_second=rate)
