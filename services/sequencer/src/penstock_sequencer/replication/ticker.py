"""Journals the passing of time: a Tick when none came for a second, and one when a group's deadline has passed."""

import asyncio

import structlog

from penstock.contracts.commands import Tick
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.runtime.clock import Clock, Entropy
from penstock_sequencer.core.queries import next_deadline_ms
from penstock_sequencer.replication.proposer import Proposals
from penstock_sequencer.replication.replica import Replica

TICK_INTERVAL_MS = 1_000
# Spread over replicas by lot, so that mostly one of them proposes and the others see its Tick in time.
TICK_JITTER_MS = 250
PATIENT_INTERVAL_MS = (
    2_500  # while a replica of an earlier release, of which we know nothing, may show itself by a Tick
)
DEADLINE_JITTER_MS = 15
LOOK_INTERVAL_MS = 200  # no group sets a deadline nearer than this that anybody would miss
LOOK_INTERVAL_MS_MIN = 2

log = structlog.get_logger()


class Ticker:
    """Proposes a Tick whenever time has passed unseen."""

    def __init__(
        self,
        replica: Replica,
        proposals: Proposals,
        clock: Clock,
        entropy: Entropy,
        known_level: int = NEWEST_LEVEL,
    ) -> None:
        self._replica = replica
        self._proposals = proposals
        self._clock = clock
        self._known_level = known_level
        lot = entropy.take(1)[0] / 256
        self._interval_ms = TICK_INTERVAL_MS + int(lot * TICK_JITTER_MS)
        self._deadline_delay_ms = int(lot * DEADLINE_JITTER_MS)

    def wait_ms(self) -> int:
        """Milliseconds until a Tick is due as things stand; 0 if it is."""
        since_tick_ms = int((self._clock.monotonic_s() - self._proposals.last_tick_s) * 1000)
        is_patient = self._replica.state.level < self._known_level
        wait_ms = (PATIENT_INTERVAL_MS if is_patient else self._interval_ms) - since_tick_ms
        deadline_ms = next_deadline_ms(self._replica.state)
        if deadline_ms is not None:
            wait_ms = min(wait_ms, deadline_ms + self._deadline_delay_ms - self._proposals.now_ms())
        return max(wait_ms, 0)

    async def run(self) -> None:
        """Propose Ticks when they are due, until cancelled."""
        while True:
            wait_ms = self.wait_ms()
            if wait_ms:
                await asyncio.sleep(min(max(wait_ms, LOOK_INTERVAL_MS_MIN), LOOK_INTERVAL_MS) / 1000)
                continue
            try:
                await self._proposals.propose([Tick(self._proposals.now_ms())])
            except Unavailable as error:
                log.warning("tick_not_journaled", error=str(error))
            await asyncio.sleep(LOOK_INTERVAL_MS_MIN / 1000)
