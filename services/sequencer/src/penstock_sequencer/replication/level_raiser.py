"""Raises the cluster's level once every replica that is alive knows a higher one (ADR 0008).

A replica shows that it is alive by its entries. From level 1 on it also sends a message each second with the level that
it knows. A replica of release 0.1.0 sends no such message, so a replica that shows only entries counts as level 0. It
may also have no entries to write. Therefore a replica leaves the Ticks to others while the cluster's level is below its
own level (ticker.py).

A journal without entries belongs to a new cluster. There a replica does not wait for silent ones.
"""

import asyncio

import msgspec
import structlog

from penstock.contracts.commands import RaiseLevel
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.concurrency.beat import until_beat
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.replica import Replica

log = structlog.get_logger()


class LevelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a replica listens to others before it raises the level."""

    look_interval_s: float = 0.5
    # How long a message or an entry counts, and how long a replica must have listened. Over twice the send interval.
    listen_s: float = 5.0
    blind_s: float = 2.0  # between two looks: the process stalled, and must listen anew
    raise_jitter_s: float = 1.0  # random for each replica, so that mostly one of them proposes


LEVEL_LIMITS = LevelLimits()


class LevelRaiser:
    """The levels that the live replicas know; `known` is the level of this replica's code."""

    def __init__(
        self,
        *,
        bus: Bus,
        replica: Replica,
        proposer: Proposer,
        clock: Clock,
        entropy: Entropy,
        known: int = NEWEST_LEVEL,
        limits: LevelLimits = LEVEL_LIMITS,
    ) -> None:
        self.known = known
        self._bus = bus
        self._replica = replica
        self._proposer = proposer
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self._heard: dict[str, tuple[int, float]] = {}  # author -> the level that it knows, arrival of its message
        self._listening_since_s = clock.monotonic_s()
        self._is_new = False  # whether the journal had no entries when this replica started

    def record_level(self, author: str, level: int) -> None:
        """Record the level that another replica sent."""
        self._heard[author] = (level, self._clock.monotonic_s())

    async def run(self) -> None:
        """Raise the level when that is possible, until cancelled."""
        self._is_new = not self._replica.state.sequence
        self._listening_since_s = looked_s = self._clock.monotonic_s()
        while True:
            await until_beat(self._limits.look_interval_s)
            if self._clock.monotonic_s() - looked_s > self._limits.blind_s or not self._bus.is_connected:
                self._listening_since_s = self._clock.monotonic_s()
            looked_s = self._clock.monotonic_s()
            if self.attainable() > self._replica.state.level:
                await asyncio.sleep(self._entropy.take(1)[0] / 256 * self._limits.raise_jitter_s)
                await self._raise()

    def attainable(self) -> int:
        """The highest level that all live replicas know.

        0 until this replica has listened for long enough, or need not listen. Removes replicas that became silent.
        """
        since_s = self._clock.monotonic_s() - self._limits.listen_s
        authors = self._replica.authors
        for author in [author for author, at_s in authors.items() if at_s < since_s]:
            del authors[author]
        for author in [author for author, (_, at_s) in self._heard.items() if at_s < since_s]:
            del self._heard[author]
        if self._listening_since_s > since_s and not self._is_new:
            return 0
        others = {**dict.fromkeys(authors, 0), **{author: level for author, (level, _) in self._heard.items()}}
        others.pop(self._proposer.author, None)
        return min([self.known, *others.values()])

    async def _raise(self) -> None:
        level = self.attainable()
        if level <= self._replica.state.level:
            return
        try:
            await self._proposer.propose([RaiseLevel(self._clock.now_ms(), level, self._is_new)])
        except Unavailable as error:
            log.warning("level_not_journaled", wanted=level, error=str(error))
        else:
            log.info("level_raised", reached=self._replica.state.level)
