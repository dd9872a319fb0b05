"""What to do about a level that the cluster has not reached yet (ADR 0008): in a moment it may have."""

import asyncio

from penstock_gateway.context import Gateway

# A cluster that is new, or whose last old sequencer has just gone, has its level seconds later. Until then clients wait
# or are told to ask again: what says that there is no such thing is final for them.
LEVEL_PATIENCE_S = 10.0
POLL_S = 0.05


def may_rise(gateway: Gateway) -> bool:
    """Whether the level that was seen may be about to rise: it was told first a short while ago."""
    return gateway.clock.monotonic_s() - gateway.sequencer.level_told_s < LEVEL_PATIENCE_S


async def until_level(gateway: Gateway, level: int) -> None:
    """Return when the cluster has reached a level, or is not about to; at once if nothing was heard of its level."""
    for _ in range(round(LEVEL_PATIENCE_S / POLL_S)):
        seen = gateway.sequencer.seen_level
        if seen is None or seen >= level or not may_rise(gateway):
            return
        await asyncio.sleep(POLL_S)
