"""One replica: it tails the journal, checks every entry, applies it to the pure machine, and tells who waits.

There is no leader. All replicas apply the same entries in the same order, so all have the same state. One that finds
the journal damaged, incomplete, made again or built on another past halts with a sentence that says so: it must never
serve a state that others do not have.
"""

import asyncio

import structlog

from penstock.contracts import codec, subjects
from penstock.contracts.commands import Tick
from penstock.contracts.entries import Entry, decode_entry
from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.messages import Advanced
from penstock.runtime.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal, JournalEntry, JournalLost
from sequencer.chain import Chain
from sequencer.core.machine import Effects, apply_entry
from sequencer.core.state import State, new_state
from sequencer.halt import halted_at
from sequencer.metrics import SequencerMetrics
from sequencer.proposals import Proposals
from sequencer.waiting import Waiting

SLICE_S = 0.005  # applied without a pause for others; an entry more comes on top
_APPLIED = ""

log = structlog.get_logger()


class Replica:
    """The state of the cluster as far as the journal was applied; `run` keeps applying."""

    def __init__(
        self,
        journal: Journal,
        bus: Bus,
        cluster: str,
        proposals: Proposals,
        chain: Chain,
        clock: Clock,
        metrics: SequencerMetrics,
    ) -> None:
        self.state: State = new_state()
        self.last_tick_s = clock.monotonic_s()  # when a Tick was applied last
        self._journal = journal
        self._bus = bus
        self._subject = subjects.advanced(cluster)
        self._proposals = proposals
        self._chain = chain
        self._clock = clock
        self._metrics = metrics
        self._announcements: list[Advanced] = []
        self._applied = Waiting()
        self._groups = Waiting()

    @property
    def applied_sequence(self) -> int:
        """The journal sequence that the state reflects."""
        return self._chain.sequence

    async def run(self) -> None:
        """Apply the journal from where we are, for ever; `Halted` if it cannot be followed."""
        try:
            async for group in self._journal.tail(self._chain.sequence):
                await self._apply_group(group)
        except (Corrupt, JournalLost) as error:
            self._metrics.halted.set(1)
            raise halted_at(self._chain.sequence, error) from error

    async def until_applied(self, sequence: int, timeout_s: float) -> None:
        """Return when the state reflects the journal sequence; `Unavailable` if it does not within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._chain.sequence < sequence:
                    await self._applied.wait(_APPLIED)
        except TimeoutError as error:
            raise Unavailable(
                f"journal entry {sequence} was not applied within {timeout_s:g} s, only {self._chain.sequence}"
            ) from error

    async def until_group_changes(self, group_id: str) -> None:
        """Return when somebody who waits in the group may have an answer, or when `release_groups` is called."""
        await self._groups.wait(group_id)

    def release_groups(self) -> None:
        """Wake all who wait for a group."""
        self._groups.wake_all()

    async def _apply_group(self, group: list[JournalEntry]) -> None:
        """Apply entries in slices, so that others have their turn in between."""
        pause_s = self._clock.monotonic_s() + SLICE_S
        for item in group:
            self._apply(item)
            if self._clock.monotonic_s() >= pause_s:
                await self._tell()
                await asyncio.sleep(0)
                pause_s = self._clock.monotonic_s() + SLICE_S
        await self._tell()

    def _apply(self, item: JournalEntry) -> None:
        started_s = self._clock.monotonic_s()
        entry = self._checked(item)
        outcomes, effects = apply_entry(self.state, item.sequence, entry.requests)
        self._chain.advance(item.data)
        if entry.author == self._proposals.author:
            self._proposals.settle(entry.entry_id, item.sequence, outcomes)
            self._announcements.append(Advanced(item.sequence, effects.partitions, effects.topics))
        self._note(entry, effects)
        self._metrics.apply_seconds.observe(self._clock.monotonic_s() - started_s)

    def _checked(self, item: JournalEntry) -> Entry:
        if item.sequence != self._chain.sequence + 1:
            raise Corrupt(f"entry {item.sequence} came when {self._chain.sequence + 1} was due")
        try:
            entry = decode_entry(item.data)
        except Corrupt as error:
            raise Corrupt(f"entry {item.sequence}: {error}") from error
        if not self._chain.check(entry):
            log.warning("entry_unchecked", sequence=item.sequence, author=entry.author, built_on=entry.author_sequence)
        return entry

    def _note(self, entry: Entry, effects: Effects) -> None:
        self._metrics.entries.inc()
        for request in entry.requests:
            self._metrics.commands.inc(len(request))
            if request and type(request[0]) is Tick:
                self.last_tick_s = self._clock.monotonic_s()
        for group_id in effects.groups:
            self._groups.wake(group_id)

    async def _tell(self) -> None:
        """Wake those who wait for the sequence, and publish what our own entries brought, in their order.

        There is one announcement per entry, so one that fits no message leaves a gap, and receivers ask instead.
        """
        self._metrics.applied_sequence.set(self._chain.sequence)
        self._applied.wake_all()
        announcements, self._announcements = self._announcements, []
        for announcement in announcements:
            data = codec.encode(announcement)
            if len(data) <= self._bus.message_bytes_max:
                await self._bus.publish(self._subject, data)
            else:
                self._metrics.unannounced.inc()
                log.warning("entry_not_announced", sequence=announcement.sequence, size_bytes=len(data))
