"""Puts commands into the journal: packs entries, appends them, and answers when this replica's tail applies them.

An append in doubt is sent again, with the same id and bytes. That ends when the tail brings the entry, or at its
deadline. The server drops copies within its duplicate window. After that window, or when the sender repeats a request
through another replica, the journal holds the commands twice. All replicas then apply both in the same way. Commands
are idempotent by content, so the second copy does no harm. No replica has to remember entry ids for ever. The sender
gets the outcomes of the first copy.

This is true only while the sender still waits. Commands held during a stall are not sent (stall_detector.py).
"""

import asyncio
import itertools
from collections.abc import Sequence

import msgspec
import structlog

from penstock.contracts.commands import Command, CommitSegment, DropExtents, ExpireLogs, Outcome
from penstock.contracts.entries import Entry, encode_entry
from penstock.contracts.errors import Unavailable, Undelivered
from penstock.contracts.levels import level_of
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal, JournalLost
from penstock.runtime.traces.traces import NO_TRACES, Traces, record
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import halted_at
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.replication.proposal_queue import (
    PROPOSER_LIMITS,
    STALLED,
    Proposal,
    ProposalQueue,
    ProposerLimits,
)
from penstock_sequencer.replication.stall_detector import StallDetector

CATCH_UP_FACTOR = 2  # the machine's clock is this much slower while it is ahead of the process's clock
TWO_CLOCKS = (ExpireLogs, DropExtents)  # `now_ms` is the second clock of these commands (ADR 0011)

log = structlog.get_logger()
_encoder = msgspec.msgpack.Encoder()


class _EntryInFlight:
    """One entry between its first append and the moment when the tail applies it."""

    __slots__ = ("data", "entry_id", "proposals", "seen", "started_s", "ticket")

    def __init__(self, entry_id: str, data: bytes, proposals: list[Proposal], started_s: float, ticket: int) -> None:
        self.entry_id = entry_id
        self.data = data
        self.proposals = proposals
        self.started_s = started_s
        self.ticket = ticket
        self.seen = asyncio.Event()


class Proposer:
    """Proposes all commands of this replica; `author` is unique to this instance of the process."""

    def __init__(
        self,
        *,
        journal: Journal,
        chain: HashChain,
        author: str,
        clock: Clock,
        metrics: SequencerMetrics,
        stalls: StallDetector,
        limits: ProposerLimits = PROPOSER_LIMITS,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._traces = traces
        self.author = author
        self.level = 0  # the cluster's level in the applied state
        self.machine_ms = 0  # the machine's clock at its last Tick
        self.last_tick_s = clock.monotonic_s()  # when that Tick was applied
        self._journal = journal
        self._chain = chain
        self._clock = clock
        self._metrics = metrics
        self._stalls = stalls
        self._limits = limits
        self._waiting = ProposalQueue(limits)
        self._in_flight: dict[str, _EntryInFlight] = {}
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._suspended_because = ""

    @property
    def in_flight_count(self) -> int:
        """How many entries are appended and not applied yet."""
        return len(self._in_flight)

    @property
    def waiting_count(self) -> int:
        """How many proposals wait for a place in an entry."""
        return len(self._waiting)

    def now_ms(self) -> int:
        """The time to journal: the process's clock, unless the machine's clock is ahead of it.

        The machine's clock is ahead when a replica's clock was too fast and was corrected. It never goes back. It then
        advances at half speed, so that deadlines pass and the process's clock catches up.
        """
        since_tick_ms = int((self._clock.monotonic_s() - self.last_tick_s) * 1000)
        return max(self._clock.now_ms(), self.machine_ms + since_tick_ms // CATCH_UP_FACTOR)

    def record_tick(self, machine_ms: int) -> None:
        """Record the machine's clock after a Tick."""
        self.machine_ms = machine_ms
        self.last_tick_s = self._clock.monotonic_s()

    async def propose(self, commands: Sequence[Command], trace: str = "") -> tuple[int, list[Outcome]]:
        """Propose the commands of one request: returns their journal sequence, and one outcome for each.

        `Invalid` if they fit no entry. `Undelivered` if too many wait, or if some replica may not know them. In both
        cases nothing was proposed. `Unavailable`: it is unknown whether they are or will be in the journal.
        """
        if self._suspended_because:
            raise Undelivered(self._suspended_because)
        level = level_of(commands)
        if level > self.level:
            raise Undelivered(f"commands of level {level}: the cluster is at {self.level} until all replicas know them")
        started_s = self._clock.monotonic_s()
        proposal = self._admit(_timed(commands, self.now_ms(), self._clock.now_ms()), started_s)
        span = self._traces.begin("journal commit", started_s, trace, commands=len(commands)) if trace else None
        proposal.trace = span.trace if span is not None else ""
        self._metrics.held_bytes.set(self._waiting.held_bytes)
        try:
            answer = await proposal.answer
        finally:
            self._waiting.release(proposal)
            self._metrics.held_bytes.set(self._waiting.held_bytes)
        now_s = self._clock.monotonic_s()
        self._metrics.proposal_seconds.observe(now_s - started_s)
        if span is not None:
            span.end(now_s, sequence=answer[0])
        return answer

    def suspend(self, reason: str) -> None:
        """Propose nothing until `resume`."""
        self._suspended_because = reason

    def resume(self) -> None:
        """Propose again."""
        self._suspended_because = ""

    def _admit(self, commands: list[Command], now_s: float) -> Proposal:
        size_bytes = len(_encoder.encode(commands))
        self._waiting.check(size_bytes, self._journal.entry_bytes_max)
        proposal = Proposal(commands, size_bytes, now_s + self._limits.wait_deadline_s, self._stalls.ticket())
        self._waiting.add(proposal)
        self._changed.set()
        return proposal

    def settle(self, entry_id: str, sequence: int, outcomes: list[list[Outcome]]) -> None:
        """Answer the requests of an entry that the tail has applied.

        Does nothing for an entry that was given up, or applied before.
        """
        entry = self._in_flight.pop(entry_id, None)
        if entry is None:
            return
        now_s = self._clock.monotonic_s()
        self._metrics.append_seconds.observe(now_s - entry.started_s)
        for proposal, answers in zip(entry.proposals, outcomes, strict=True):
            if proposal.trace:
                record(self._traces, "journal append", entry.started_s, now_s, proposal.trace, entry=entry_id)
            if not proposal.answer.done():
                proposal.answer.set_result((sequence, answers))
        entry.seen.set()
        self._changed.set()

    async def run(self) -> None:
        """Append proposals until cancelled; `Halted` when the journal no longer exists."""
        async with asyncio.TaskGroup() as appends:
            while True:
                while not len(self._waiting) or len(self._in_flight) >= self._limits.appends_in_flight_max:
                    self._changed.clear()
                    await self._changed.wait()
                proposals = self._waiting.take(self._clock.monotonic_s(), self._stalls.is_good)
                if proposals:
                    appends.create_task(self._append(self._entry_of(proposals)))

    def _entry_of(self, proposals: list[Proposal]) -> _EntryInFlight:
        entry_id = f"{self.author}.{next(self._numbers)}"
        requests = [proposal.commands for proposal in proposals]
        data = encode_entry(Entry(entry_id, self.author, self._chain.sequence, self._chain.hash, requests))
        entry = _EntryInFlight(entry_id, data, proposals, self._clock.monotonic_s(), proposals[0].ticket)
        self._in_flight[entry_id] = entry
        self._metrics.entry_requests.observe(len(proposals))
        return entry

    async def _append(self, entry: _EntryInFlight) -> None:
        deadline_s = self._limits.append_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                if await self._append_until_stored(entry):
                    await entry.seen.wait()
                else:
                    self._give_up(entry, STALLED)
        except TimeoutError:
            self._give_up(entry, f"entry {entry.entry_id} did not return within {deadline_s:g} s")
        except JournalLost as error:
            raise halted_at(self._chain.sequence, error) from error

    async def _append_until_stored(self, entry: _EntryInFlight) -> bool:
        """Whether it is stored; false after a stall, when it must not be sent any more."""
        while not entry.seen.is_set():
            if not self._stalls.is_good(entry.ticket):
                return False
            try:
                await self._journal.append(entry.entry_id, entry.data)
                return True
            except Unavailable as error:
                log.warning("append_in_doubt", entry=entry.entry_id, error=str(error))
            self._metrics.append_retries.inc()
            await asyncio.sleep(self._limits.retry_ms / 1000)
        return True

    def _give_up(self, entry: _EntryInFlight, reason: str) -> None:
        if self._in_flight.pop(entry.entry_id, None) is None:
            return
        for proposal in entry.proposals:
            proposal.fail(Unavailable(reason))
        self._changed.set()


def _timed(commands: Sequence[Command], now_ms: int, clock_ms: int) -> list[Command]:
    """The commands with no time later than `now_ms`: a sender's fast clock must not become the machine's.

    A commit with a lease gets this time: its sender repeats it unchanged, but a current clock must judge the lease.
    Live data goes only when two clocks agree. So the machine's clock, which may be far ahead, cannot be both of them:
    such a command gets no later time than `clock_ms`, this process's clock.
    """
    timed = []
    for command in commands:
        latest_ms = clock_ms if isinstance(command, TWO_CLOCKS) else now_ms
        has_lease = isinstance(command, CommitSegment) and bool(command.not_after_ms)
        is_replaced = has_lease or command.now_ms > latest_ms
        timed.append(msgspec.structs.replace(command, now_ms=latest_ms) if is_replaced else command)
    return timed
