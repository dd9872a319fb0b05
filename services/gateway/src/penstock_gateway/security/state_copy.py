"""The copy of a part of the cluster's state in this gateway's memory, kept up to date.

Every announcement contains the sequence of the entry that changed the part last. A gateway queries it at its start, and
when it sees a newer sequence. While no sequencer answers it keeps what it has.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

import msgspec
import structlog

from penstock.contracts.errors import Unavailable
from penstock.runtime.bus.sequencer_client import Answer

View = TypeVar("View", bound=Answer)

log = structlog.get_logger()


class CopyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a copy waits for sequencers."""

    query_deadline_s: float = 5.0
    retry_s: float = 1.0
    pages_max: int = 1_000  # of one refresh; all users and bindings are fewer than 100


DEFAULT_LIMITS = CopyLimits()


class Sequencers(Protocol):
    """The part of the sequencer client that a copy needs: queries, and the cluster's level."""

    @property
    def seen_level(self) -> int | None: ...

    async def query(
        self, name: str, query: msgspec.Struct, view: type[View], *, deadline_s: float | None = None
    ) -> View: ...


class StateCopy(ABC):
    """A part of the state, with the sequence of the newest change that is applied here.

    `is_known` is False until a sequencer has answered once, or the cluster is at a level without this part.
    """

    def __init__(self, name: str, level: int, sequencer: Sequencers, limits: CopyLimits = DEFAULT_LIMITS) -> None:
        """`name` is the query. Sequencers below `level` do not know it."""
        self.is_known = False
        self.sequence = 0
        self._name = name
        self._level = level
        self._sequencer = sequencer
        self._limits = limits
        self._wanted_sequence = 0  # of the newest change that was announced
        self._changed = asyncio.Event()
        self._changed.set()  # the first query is due
        self._refreshing = asyncio.Lock()  # an answer is never replaced by an older one

    def record(self, sequence: int) -> None:
        """Record that the entry with this sequence changed this part."""
        if sequence > max(self._wanted_sequence, self.sequence):
            self._wanted_sequence = sequence
            self._changed.set()

    async def run(self) -> None:
        """Query the part now and whenever it has changed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted_sequence
            if not await self.refresh() or self.sequence < wanted:
                await asyncio.sleep(self._limits.retry_s)
                self._changed.set()

    async def refresh(self) -> bool:
        """Query the part now, and return whether this copy has all changes that were made before.

        It keeps what it has if no sequencer answers.
        """
        async with self._refreshing:
            try:
                await self._refresh()
            except Unavailable as error:
                level = self._sequencer.seen_level
                if level is not None and level < self._level:
                    self.is_known = True
                    return True
                log.warning("state_query_failed", query=self._name, error=str(error))
                return False
            return True

    @abstractmethod
    async def _refresh(self) -> None:
        """Query the part, page by page, and apply it."""

    async def _query(self, query: msgspec.Struct, view: type[View]) -> View:
        return await self._sequencer.query(self._name, query, view, deadline_s=self._limits.query_deadline_s)
