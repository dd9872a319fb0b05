"""Whoever replays is held back while others follow the end of the log, the more so the sooner those have their news."""

import asyncio
from collections import Counter

import pytest

from penstock.contracts.errors import Invalid
from penstock_gateway.config import GatewayConfig
from penstock_gateway.fetch.catch_up_throttle import (
    BYTES_PER_SECOND_MIN,
    BYTES_PER_SECOND_PER_AGE_S,
    FOLLOWED_S,
    MIB,
    RATE_MIN,
    CatchUpSlot,
    CatchUpThrottle,
)
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time

READS = 40
PATIENCE_S = 1.0


def paced(bytes_per_second: int) -> CatchUpThrottle:
    """A pace that somebody is followed by."""
    pace = CatchUpThrottle(bytes_per_second, VirtualClock())
    pace.record_followed()
    return pace


async def seconds_for(pace: CatchUpThrottle, size_bytes: int) -> float:
    """How long so many bytes take that one connection reads MiB by MiB."""
    began_s = asyncio.get_running_loop().time()
    turn = CatchUpSlot()
    for _ in range(size_bytes // MIB):
        assert await pace.until_due(turn, MIB, PATIENCE_S)
    assert await pace.until_due(turn, 0, PATIENCE_S)
    return asyncio.get_running_loop().time() - began_s


@in_virtual_time
async def test_while_nobody_follows_the_end_history_waits_for_nothing() -> None:
    pace = CatchUpThrottle(MIB, VirtualClock())
    assert not pace.is_held
    assert await seconds_for(pace, READS * MIB) == 0


@in_virtual_time
async def test_while_somebody_follows_the_end_history_has_the_rate_that_was_set() -> None:
    pace = paced(8 * MIB)
    assert pace.is_held
    assert await seconds_for(pace, READS * MIB) == pytest.approx(READS / 8)


@in_virtual_time
async def test_the_older_the_news_is_when_it_comes_the_faster_is_history() -> None:
    pace = paced(0)
    assert pace.bytes_per_second == BYTES_PER_SECOND_MIN
    pace.record_news(0.25, 1)
    assert pace.bytes_per_second == pytest.approx(0.25 * BYTES_PER_SECOND_PER_AGE_S)
    for _ in range(200):
        pace.record_news(0.0, 1)
    assert pace.bytes_per_second == BYTES_PER_SECOND_MIN


@in_virtual_time
async def test_who_fell_behind_what_is_written_can_catch_up() -> None:
    pace = paced(0)
    written = 40 * MIB
    for _ in range(60):
        await asyncio.sleep(1)
        pace.record_news(0.001, written)
    assert 1.5 * written < pace.bytes_per_second < 2.5 * written
    await asyncio.sleep(60)
    assert pace.bytes_per_second == BYTES_PER_SECOND_MIN


@in_virtual_time
async def test_who_gave_up_following_holds_nobody_back_after_a_while_whatever_was_promised_before() -> None:
    pace, turn = paced(RATE_MIN), CatchUpSlot()
    assert await pace.until_due(turn, 100 * MIB, PATIENCE_S)
    assert not await pace.until_due(turn, MIB, PATIENCE_S)
    await asyncio.sleep(FOLLOWED_S)
    assert not pace.is_held
    assert await pace.until_due(turn, MIB, 0)
    pace.record_followed()
    assert await pace.until_due(turn, MIB, 0)


@in_virtual_time
async def test_nobody_waits_longer_than_he_has_patience_and_all_have_the_same() -> None:
    pace = paced(8 * MIB)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 60
    got: Counter[int] = Counter()

    async def replay(number: int) -> None:
        turn = CatchUpSlot()
        while loop.time() < end_s:
            asked_s = loop.time()
            got[number] += await pace.until_due(turn, MIB, PATIENCE_S)
            assert loop.time() - asked_s <= PATIENCE_S + 1e-6
            pace.record_followed()
            await asyncio.sleep(0.005)

    await asyncio.gather(*(replay(number) for number in range(READS)))
    assert sum(got.values()) == pytest.approx(60 * 8, rel=0.05)
    assert max(got.values()) - min(got.values()) <= 2


@in_virtual_time
async def test_who_has_no_patience_has_a_turn_all_the_same() -> None:
    pace, eager, other = paced(MIB), CatchUpSlot(), CatchUpSlot()
    assert await pace.until_due(other, MIB, PATIENCE_S)
    got = 0
    for _ in range(100):
        got += await pace.until_due(eager, MIB, 0)
        await pace.until_due(other, MIB, 0.1)
        pace.record_followed()
    assert got == pytest.approx(5, abs=1)


@pytest.mark.parametrize("rate", [1, RATE_MIN - 1])
def test_a_rate_at_which_nothing_would_ever_come_is_refused(rate: int) -> None:
    with pytest.raises(Invalid, match=f"history bytes per second must be 0 or at least {RATE_MIN}: {rate}"):
        GatewayConfig(history_bytes_per_second=rate)
