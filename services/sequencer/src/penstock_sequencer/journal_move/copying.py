"""Copies the journal's entries with their sequences, and ends the old journal by a move mark.

The new stream accepts an entry only as its next one. So an interrupted copy continues after the last entry there. Two
copies at once, or a late retry, do no harm.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from penstock.contracts.entries import MoveMark, encode_move_mark, is_move_mark
from penstock.contracts.errors import Conflict, Invalid, Unavailable
from penstock.runtime.journal import Journal, JournalEntry, JournalGap
from penstock_sequencer.storage.journal_stream import NatsStreams

log = structlog.get_logger()


class CopyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often a copy is tried again, and how far behind it may be when the old journal ends."""

    attempts_max: int = 20
    retry_s: float = 0.5
    # Clients wait while the rest is copied. A server that syncs takes about a thousand entries per second.
    behind_max: int = 500
    rounds_max: int = 50  # an old journal that grows faster than the copy is ended all the same
    mark_search_max: int = 10_000  # entries that sequencers appended after the mark, before they saw it


COPY_LIMITS = CopyLimits()


class JournalCopy:
    """The copy of one journal."""

    def __init__(
        self,
        source: Journal,
        target: Journal,
        streams: NatsStreams,
        *,
        report: Callable[[str], None],
        limits: CopyLimits = COPY_LIMITS,
    ) -> None:
        """`streams` are those at the target; `report` gets a line for each round."""
        self._source = source
        self._target = target
        self._streams = streams
        self._report = report
        self._limits = limits
        self.mark_sequence: int | None = None  # of the mark that ends the old journal, once it was read

    async def catch_up(self) -> None:
        """Copy until the rest is small, or until the mark."""
        for _ in range(self._limits.rounds_max):
            await self.copy()
            if self.mark_sequence is not None or await self._behind() <= self._limits.behind_max:
                return

    async def end_source(self, mark: MoveMark) -> None:
        """Append the mark, if there is none, and copy all entries before it. Nothing after it counts."""
        if self.mark_sequence is None:
            await self._again(lambda: self._append_mark(mark))
        while self.mark_sequence is None:
            await self.copy()

    async def copy(self) -> None:
        """Copy all entries that the old journal has now, up to the mark."""
        await self._again(self._copy)

    async def _behind(self) -> int:
        source, target = await self._source.describe(), await self._target.describe()
        return source.last_sequence - target.last_sequence

    async def _append_mark(self, mark: MoveMark) -> None:
        await self._source.append(f"moved-{mark.created}", encode_move_mark(mark))

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        for _ in range(self._limits.attempts_max - 1):
            try:
                await work()
                return
            except (Unavailable, Conflict, JournalGap) as error:
                log.info("journal_copy_interrupted", error=str(error))
                await asyncio.sleep(self._limits.retry_s)
        await work()

    async def _copy(self) -> None:
        end = (await self._source.describe()).last_sequence
        after = await self._place()
        if after >= end:
            return
        self._report(f"copying entries {after + 1} to {end}")
        async with contextlib.aclosing(self._source.tail(after)) as groups:  # type: ignore[type-var]
            async for group in groups:
                entries = self._before_the_mark(group)
                await asyncio.gather(*(self._streams.append_at(each.sequence, each.data) for each in entries))
                if self.mark_sequence is not None or group[-1].sequence >= end:
                    return

    def _before_the_mark(self, group: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
        for number, entry in enumerate(group):
            if is_move_mark(entry.data):
                self.mark_sequence = entry.sequence
                return group[:number]
        return group

    async def _place(self) -> int:
        """The last sequence that needs no copy."""
        source, target = await self._source.describe(), await self._target.describe()
        if target.last_sequence < source.first_sequence:  # the rest of the copy would begin after a gap
            await self._streams.start_at(source.first_sequence)
            return source.first_sequence - 1
        last = target.last_sequence
        if last > source.last_sequence or await entry_at(self._source, last) != await entry_at(self._target, last):
            raise Invalid(
                f"the stream at the new servers ends with entry {last}, which is not of this journal. Nothing was "
                f"changed. Remove that stream if it is not needed, and then move the journal"
            )
        return last


async def entry_at(journal: Journal, sequence: int) -> bytes:
    """The bytes of one entry, which must exist."""
    async with contextlib.aclosing(journal.tail(sequence - 1)) as groups:  # type: ignore[type-var]
        async for group in groups:
            return group[0].data
    raise AssertionError("a tail does not end")


async def has_mark(journal: Journal, *, limits: CopyLimits = COPY_LIMITS) -> bool:
    """Whether the journal was moved away; looks at its newest entries."""
    info = await journal.describe()
    after = max(info.first_sequence - 1, info.last_sequence - limits.mark_search_max)
    if after >= info.last_sequence:
        return False
    async with contextlib.aclosing(journal.tail(after)) as groups:  # type: ignore[type-var]
        async for group in groups:
            if any(is_move_mark(entry.data) for entry in group):
                return True
            if group[-1].sequence >= info.last_sequence:
                return False
    raise AssertionError("a tail does not end")
