"""Raises the cluster's level once every replica that gives a sign of life knows a higher one (ADR 0008).

A replica gives signs of life by its entries, and from level 1 on by telling the others each second what it knows. One
of 0.1.0 tells nothing, so whoever is known by entries alone knows level 0. That it has none to write is no reason for
it to stay unseen: while the level is below what we know we leave the Ticks to others (ticker.py).

A journal that we found without entries is a new cluster's. There we do not wait for somebody silent.
"""

import asyncio

import structlog

from penstock.contracts.commands import RaiseLevel
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock, Entropy
from penstock_sequencer.replication.proposer import Proposals
from penstock_sequencer.replication.replica import Replica

LOOK_INTERVAL_S = 0.5
LISTEN_S = 5.0  # that a sign of life counts for, and that we must have listened; more than twice what any is apart
BLIND_S = 2.0  # between two looks: then we stood still, and begin to listen anew
RAISE_JITTER_S = 1.0  # spread over replicas by lot, so that mostly one of them proposes

log = structlog.get_logger()


class Levels:
    """What every replica knows, as far as it can be heard; `known` is what this one does, by its code."""

    def __init__(
        self,
        bus: Bus,
        replica: Replica,
        proposals: Proposals,
        clock: Clock,
        entropy: Entropy,
        known: int = NEWEST_LEVEL,
    ) -> None:
        self.known = known
        self._bus = bus
        self._replica = replica
        self._proposals = proposals
        self._clock = clock
        self._entropy = entropy
        self._heard: dict[str, tuple[int, float]] = {}  # author -> the level that it knows, when it said so
        self._listening_since_s = clock.monotonic_s()
        self._is_new = False  # whether the journal had no entries when we came

    def take_in(self, author: str, level: int) -> None:
        """Another replica said what it knows."""
        self._heard[author] = (level, self._clock.monotonic_s())

    async def run(self) -> None:
        """Look, and propose what may be, until cancelled."""
        self._is_new = not self._replica.state.sequence
        self._listening_since_s = looked_s = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            if self._clock.monotonic_s() - looked_s > BLIND_S or not self._bus.is_connected:
                self._listening_since_s = self._clock.monotonic_s()
            looked_s = self._clock.monotonic_s()
            if self.attainable() > self._replica.state.level:
                await asyncio.sleep(self._entropy.take(1)[0] / 256 * RAISE_JITTER_S)
                await self._raise()

    def attainable(self) -> int:
        """The level that all replicas know which gave a sign of life lately.

        0 until we have listened for long enough, or have no need to. Forgets who gave none.
        """
        since_s = self._clock.monotonic_s() - LISTEN_S
        authors = self._replica.authors
        for author in [author for author, at_s in authors.items() if at_s < since_s]:
            del authors[author]
        for author in [author for author, (_, at_s) in self._heard.items() if at_s < since_s]:
            del self._heard[author]
        if self._listening_since_s > since_s and not self._is_new:
            return 0
        others = {**dict.fromkeys(authors, 0), **{author: level for author, (level, _) in self._heard.items()}}
        others.pop(self._proposals.author, None)
        return min([self.known, *others.values()])

    async def _raise(self) -> None:
        level = self.attainable()
        if level <= self._replica.state.level:
            return
        try:
            await self._proposals.propose([RaiseLevel(self._clock.now_ms(), level, self._is_new)])
        except Unavailable as error:
            log.warning("level_not_journaled", wanted=level, error=str(error))
        else:
            log.info("level_raised", reached=self._replica.state.level)
