"""Journals the time: a Tick when none came for a second, and a Tick when a group's deadline has passed."""

import asyncio

import msgspec
import structlog

from penstock.contracts.commands import Tick
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.runtime.clock import Clock, Entropy
from penstock_sequencer.core.queries import next_deadline_ms
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.replica import Replica

log = structlog.get_logger()


class TickerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often a replica proposes a Tick."""

    tick_interval_ms: int = 1_000
    # Random for each replica, so that mostly one of them proposes and the others see its Tick in time.
    tick_jitter_ms: int = 250
    # While the cluster is below the level that this release knows. Replicas of earlier releases must write the Ticks
    # then: only entries show that they are alive.
    low_level_interval_ms: int = 2_500
    deadline_jitter_ms: int = 15
    look_interval_ms: int = 250  # no group sets a deadline so near that this delay matters
    look_interval_ms_min: int = 2


TICKER_LIMITS = TickerLimits()


class Ticker:
    """Proposes a Tick when no entry has recorded the time for a while."""

    def __init__(
        self,
        *,
        replica: Replica,
        proposer: Proposer,
        clock: Clock,
        entropy: Entropy,
        known_level: int = NEWEST_LEVEL,
        limits: TickerLimits = TICKER_LIMITS,
    ) -> None:
        self._replica = replica
        self._proposer = proposer
        self._clock = clock
        self._known_level = known_level
        self._limits = limits
        fraction = entropy.take(1)[0] / 256
        self._interval_ms = limits.tick_interval_ms + int(fraction * limits.tick_jitter_ms)
        self._deadline_delay_ms = int(fraction * limits.deadline_jitter_ms)

    def wait_ms(self) -> int:
        """Milliseconds until a Tick is due; 0 if it is due now."""
        since_tick_ms = int((self._clock.monotonic_s() - self._proposer.last_tick_s) * 1000)
        is_low = self._replica.state.level < self._known_level
        wait_ms = (self._limits.low_level_interval_ms if is_low else self._interval_ms) - since_tick_ms
        deadline_ms = next_deadline_ms(self._replica.state)
        if deadline_ms is not None:
            wait_ms = min(wait_ms, deadline_ms + self._deadline_delay_ms - self._proposer.now_ms())
        return max(wait_ms, 0)

    async def run(self) -> None:
        """Propose Ticks when they are due, until cancelled.

        Not at common instants: replicas that start together would write before they hear of an entry that is lost.
        """
        limits = self._limits
        while True:
            wait_ms = self.wait_ms()
            if wait_ms:
                await asyncio.sleep(min(max(wait_ms, limits.look_interval_ms_min), limits.look_interval_ms) / 1000)
                continue
            try:
                await self._proposer.propose([Tick(self._proposer.now_ms())])
            except Unavailable as error:
                log.warning("tick_not_journaled", error=str(error))
                await asyncio.sleep(limits.look_interval_ms / 1000)  # the failure may come at once, for many seconds
            await asyncio.sleep(limits.look_interval_ms_min / 1000)
