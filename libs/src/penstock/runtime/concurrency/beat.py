"""Periodic work at common instants of the event loop's clock, so that it shares the wake-ups of an idle process.

Each wake-up of a process costs more than most periodic work. With timers of their own, ten tasks of an idle process
wake it ten times. Here all tasks with one interval wake at the same instants. Longer intervals that are multiples of
it use some of the same instants. The clock of event loops is the machine's. So the processes of one machine wake
together, too, and a server between them handles their messages at once.
"""

import asyncio
import math

# A timer may end this much before its time; that instant is then not waited for again.
EARLY_S_MAX = 0.005


def next_beat_s(now_s: float, interval_s: float) -> float:
    """The first multiple of the interval after this time; never more than an interval after it."""
    early_s = min(EARLY_S_MAX, interval_s / 4)
    beat_s = (math.floor((now_s + early_s) / interval_s) + 1) * interval_s
    return min(beat_s, now_s + interval_s)


async def until_beat(interval_s: float) -> None:
    """Sleep until the next common instant of this interval: for at most the interval, and often for less."""
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(next_beat_s(now_s, interval_s) - now_s)
