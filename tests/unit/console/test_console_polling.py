"""A reading is made while it is wanted, once for all waiting pages, and at most at its interval."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock_console.survey.polling import Poll, PollLimits
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time

LIMITS = PollLimits(interval_s=5, busy_share=0.1, wanted_s=60, fresh_s=12, repeat_s=1)


class Source:
    """Readings with the time at which each began."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.error: Exception | None = None
        self.begun: list[float] = []
        self.clock = VirtualClock()
        self.poll = Poll("test", self.read, self.clock, limits=LIMITS)

    async def read(self) -> float:
        began_s = self.clock.monotonic_s()
        self.begun.append(began_s)
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return began_s


@asynccontextmanager
async def running(source: Source) -> AsyncIterator[Source]:
    task = asyncio.create_task(source.poll.run())
    try:
        yield source
    finally:
        task.cancel()


@in_virtual_time
async def test_nothing_is_read_before_it_is_wanted_and_long_after_it_was() -> None:
    async with running(Source()) as source:
        await asyncio.sleep(100)
        assert source.begun == []
        await source.poll.current()
        await asyncio.sleep(1_000)
        assert source.begun[0] == 100
        assert 160 <= source.begun[-1] <= 160 + LIMITS.interval_s
        count = len(source.begun)
        await asyncio.sleep(1_000)
        assert len(source.begun) == count
        assert await source.poll.current() == source.clock.monotonic_s(), "an old reading is no answer"


@in_virtual_time
async def test_while_it_is_wanted_it_is_read_once_in_each_interval() -> None:
    async with running(Source()) as source:
        for _ in range(100):
            await source.poll.current()
            await asyncio.sleep(1)
        assert source.begun[:20] == [5 * each for each in range(20)]


@in_virtual_time
async def test_all_waiters_get_one_reading() -> None:
    source = Source(takes_s=3)
    readings = await asyncio.gather(*(source.poll.current() for _ in range(50)))
    assert (set(readings), source.begun) == ({0.0}, [0.0])


@in_virtual_time
async def test_a_slow_reading_is_made_less_often_and_stays_fresh_for_longer() -> None:
    async with running(Source(takes_s=6)) as source:
        await source.poll.current()
        for _ in range(300):
            await source.poll.current()
            await asyncio.sleep(1)
        pauses = [later - earlier for earlier, later in zip(source.begun, source.begun[1:], strict=False)]
        assert pauses and set(pauses[1:]) == {60 + 6}
        assert len(source.begun) * 6 / 306 < LIMITS.busy_share + 0.05


@in_virtual_time
async def test_a_refresh_returns_a_reading_that_began_after_it() -> None:
    source = Source(takes_s=2)
    early = asyncio.create_task(source.poll.current())
    await asyncio.sleep(1)
    assert await source.poll.refresh() == 2.0
    assert await early == 0.0
    assert await source.poll.current() == 2.0


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unavailable("no sequencer answers"), "no sequencer answers"),
        (TimeoutError(), "TimeoutError"),
        (ConnectionError("reset"), "reset"),
    ],
)
@in_virtual_time
async def test_an_error_is_kept_until_a_reading_succeeds(error: Exception, text: str) -> None:
    source = Source()
    source.error = error
    with pytest.raises(Unavailable, match=text):
        await source.poll.current()
    assert source.poll.error == text
    source.error = None
    await source.poll.current()
    assert source.poll.error == ""


@in_virtual_time
async def test_a_failure_ends_the_wait_of_all_that_wait_for_the_reading() -> None:
    """Otherwise each page would try in its turn, and the last one would wait for all time-outs."""
    source = Source(takes_s=10)
    source.error = Unavailable("no sequencer answers")
    found = await asyncio.gather(*(source.poll.current() for _ in range(20)), return_exceptions=True)
    assert [str(each) for each in found] == ["no sequencer answers"] * 20
    assert source.begun == [0.0]
    source.error = None
    assert await source.poll.current() == 10.0, "the next request tries again"


@in_virtual_time
async def test_a_reading_that_is_still_fresh_is_answered_during_failures() -> None:
    async with running(Source()) as source:
        await source.poll.current()
        source.error = Unavailable("no sequencer answers")
        await asyncio.sleep(LIMITS.fresh_s)
        assert await source.poll.current() == 0.0
        await asyncio.sleep(1)
        with pytest.raises(PenstockError):
            await source.poll.current()


@in_virtual_time
async def test_an_error_of_the_reading_itself_does_not_end_the_loop() -> None:
    async with running(Source()) as source:
        source.error = Invalid("the metrics need a token")
        with pytest.raises(Invalid):
            await source.poll.current()
        await asyncio.sleep(30)
        source.error = None
        await asyncio.sleep(10)
        assert source.poll.error == ""


@in_virtual_time
async def test_metrics_get_no_reading_that_is_old_and_keep_readings_going() -> None:
    async with running(Source()) as source:
        assert source.poll.newest_wanted() is None
        await asyncio.sleep(2 * LIMITS.interval_s)
        found = source.poll.newest_wanted()
        assert found is not None and found >= LIMITS.interval_s
        await asyncio.sleep(1_000)
        assert source.poll.newest_wanted() is None
        await asyncio.sleep(2 * LIMITS.interval_s)
        assert source.poll.newest_wanted() is not None


@in_virtual_time
async def test_an_item_that_is_younger_than_the_reading_is_read_for_at_most_once_in_a_while() -> None:
    source = Source()
    assert await source.poll.with_item(lambda began_s: False) == 0.0
    await asyncio.sleep(0.5)
    assert await source.poll.with_item(lambda began_s: False) == 0.0
    await asyncio.sleep(1)
    assert await source.poll.with_item(lambda began_s: began_s > 1) == 1.5
    await asyncio.sleep(5)
    assert await source.poll.with_item(lambda began_s: began_s > 1) == 1.5
