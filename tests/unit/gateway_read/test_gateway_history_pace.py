"""Whoever replays is held back while others follow the end of the log, the more so the sooner those have their news."""

import asyncio

import pytest

from gateway.history_pace import (
    BYTES_PER_SECOND_MIN,
    BYTES_PER_SECOND_PER_AGE_S,
    FOLLOWED_S,
    MIB,
    WAIT_S_MAX,
    HistoryPace,
)
from tests.testkit.virtual_time import VirtualClock, in_virtual_time

READS = 40


async def seconds_for(pace: HistoryPace, size_bytes: int) -> float:
    """How long so many bytes take that are read MiB by MiB."""
    began_s = asyncio.get_running_loop().time()
    for _ in range(size_bytes // MIB):
        assert await pace.until_due(MIB)
    assert await pace.until_due(0)
    return asyncio.get_running_loop().time() - began_s


@in_virtual_time
async def test_while_nobody_follows_the_end_history_waits_for_nothing() -> None:
    pace = HistoryPace(MIB, VirtualClock())
    assert not pace.is_held
    assert await seconds_for(pace, READS * MIB) == 0


@in_virtual_time
async def test_while_somebody_follows_the_end_history_has_the_rate_that_was_set() -> None:
    pace = HistoryPace(4 * MIB, VirtualClock())
    pace.note_followed()
    assert pace.is_held
    assert await seconds_for(pace, READS * MIB) == pytest.approx(READS / 4)


@in_virtual_time
async def test_the_older_the_news_is_when_it_comes_the_faster_is_history() -> None:
    pace = HistoryPace(0, VirtualClock())
    pace.note_followed()
    assert pace.bytes_per_second == BYTES_PER_SECOND_MIN
    for _ in range(100):
        pace.note_news(0.25, 1)
    assert pace.bytes_per_second == pytest.approx(0.25 * BYTES_PER_SECOND_PER_AGE_S, rel=0.01)
    for _ in range(200):
        pace.note_news(0.0, 1)
    assert pace.bytes_per_second == BYTES_PER_SECOND_MIN


@in_virtual_time
async def test_who_fell_behind_what_is_written_can_catch_up() -> None:
    pace = HistoryPace(0, VirtualClock())
    written = 40 * MIB
    for _ in range(60):
        await asyncio.sleep(1)
        pace.note_news(0.001, written)
    assert 1.5 * written < pace.bytes_per_second < 2.5 * written
    await asyncio.sleep(60)
    assert pace.bytes_per_second == BYTES_PER_SECOND_MIN


@in_virtual_time
async def test_who_gave_up_following_holds_nobody_back_after_a_while() -> None:
    pace = HistoryPace(1, VirtualClock())
    pace.note_followed()
    await asyncio.sleep(FOLLOWED_S - 1)
    assert pace.is_held
    await asyncio.sleep(2)
    assert not pace.is_held
    assert await pace.until_due(MIB)


@in_virtual_time
async def test_nobody_waits_longer_than_clients_have_patience_and_the_rate_is_kept() -> None:
    pace = HistoryPace(MIB, VirtualClock())
    pace.note_followed()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    got = 0
    while loop.time() < began_s + 10:
        asked_s = loop.time()
        got += sum(await asyncio.gather(*(pace.until_due(MIB) for _ in range(READS))))
        assert loop.time() - asked_s <= WAIT_S_MAX
    assert 10 <= got <= 12
