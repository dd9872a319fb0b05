"""Commands on their way into the journal: packed into entries, appended, answered when the own tail has applied them.

The requests that wait while appends are under way go together into the next entry (group commit): in the order in which
they came, and no request is ever split over two entries.

An append in doubt is sent again, same id and same bytes, until the tail brings the entry or its time is over. Within
the server's window of duplicates that stores it once. Beyond the window, or for a request that its sender repeated
through another replica, the journal holds the same commands twice. All replicas then apply both, alike: commands are
idempotent by content, so the second copy does no harm, and no replica has to remember entry ids for ever. Whoever waits
gets the outcomes of the first copy.

No harm, that is, while its sender still waits for it. What we held while we stood still is not sent (stalls.py).
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence

import msgspec
import structlog

from penstock.contracts.commands import Command, Outcome
from penstock.contracts.entries import Entry, encode_entry
from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.contracts.levels import level_of
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal, JournalLost
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import halted_at
from penstock_sequencer.replication.hash_chain import Chain
from penstock_sequencer.replication.stall_detector import Stalls

APPENDS_IN_FLIGHT_MAX = 4  # keeps the disk busy while an answer travels; more only makes entries smaller
ENTRY_BYTES_WANTED = 256 * 1024  # some 6,000 batches: applied in 30 ms, so that no entry stalls the event loop for long
ENTRY_COMMANDS_MAX = 1_024  # the same bound for many tiny commands; a request with more is alone in its entry
ENTRY_HEAD_BYTES_MAX = 1_024  # what an entry takes beside its commands, and the journal's headers
PROPOSALS_MAX = 16_384  # requests not answered yet; a gateway asks again rather than wait behind more
PROPOSAL_BYTES_MAX = 64 * 1024 * 1024  # eight of the largest requests
WAIT_DEADLINE_S = 2.0  # for a place in an entry; senders give up and ask another replica after one second
APPEND_DEADLINE_S = 10.0  # for an entry to come back; well inside the server's window of duplicates
RETRY_MS = 50
CATCH_UP_FACTOR = 2
STOOD_STILL = "the process stood still while the commands waited here"

log = structlog.get_logger()
_encoder = msgspec.msgpack.Encoder()


class _Proposal:
    """One request's commands and who waits for their outcomes."""

    __slots__ = ("answer", "commands", "expires_s", "size_bytes", "ticket")

    def __init__(self, commands: list[Command], size_bytes: int, expires_s: float, ticket: int) -> None:
        self.commands = commands
        self.size_bytes = size_bytes
        self.expires_s = expires_s
        self.ticket = ticket
        self.answer: asyncio.Future[tuple[int, list[Outcome]]] = asyncio.get_running_loop().create_future()

    def fail(self, error: Unavailable) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Flight:
    """One entry on its way into the journal and back through the tail."""

    __slots__ = ("data", "entry_id", "proposals", "seen", "started_s", "ticket")

    def __init__(self, entry_id: str, data: bytes, proposals: list[_Proposal], started_s: float, ticket: int) -> None:
        self.entry_id = entry_id
        self.data = data
        self.proposals = proposals
        self.started_s = started_s
        self.ticket = ticket
        self.seen = asyncio.Event()


class Proposals:
    """What this replica puts into the journal; `author` is unique to this life of the process."""

    def __init__(
        self,
        journal: Journal,
        chain: Chain,
        author: str,
        clock: Clock,
        metrics: SequencerMetrics,
        stalls: Stalls,
    ) -> None:
        self.author = author
        self.level = 0  # what the cluster has reached, as far as the tail was applied
        self.machine_ms = 0  # the machine's clock at its last Tick
        self.last_tick_s = clock.monotonic_s()  # when that was applied
        self._journal = journal
        self._chain = chain
        self._clock = clock
        self._metrics = metrics
        self._stalls = stalls
        self._waiting: deque[_Proposal] = deque()
        self._flights: dict[str, _Flight] = {}
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._held = 0
        self._held_bytes = 0

    def now_ms(self) -> int:
        """The time to journal: our clock's, unless the machine's is ahead of it, by a clock that has been set right.

        That never goes back. It goes on at half speed then, so that deadlines pass and our clock catches up.
        """
        since_tick_ms = int((self._clock.monotonic_s() - self.last_tick_s) * 1000)
        return max(self._clock.now_ms(), self.machine_ms + since_tick_ms // CATCH_UP_FACTOR)

    def record_tick(self, machine_ms: int) -> None:
        """A Tick was applied, and the machine's clock shows this."""
        self.machine_ms = machine_ms
        self.last_tick_s = self._clock.monotonic_s()

    async def propose(self, commands: Sequence[Command]) -> tuple[int, list[Outcome]]:
        """Commands of one request: the journal sequence that holds them, and one outcome for each.

        `Invalid` if they fit into no entry and `Undelivered` if too many wait, or if some replica may not know them:
        nothing was proposed. `Unavailable`: it is unknown whether they are or will be in the journal.
        """
        level = level_of(commands)
        if level > self.level:
            raise Undelivered(f"commands of level {level}: the cluster is at {self.level} until all replicas know them")
        started_s = self._clock.monotonic_s()
        proposal = self._admit(_not_ahead(commands, self.now_ms()), started_s)
        self._hold(1, proposal.size_bytes)
        try:
            answer = await proposal.answer
        finally:
            self._hold(-1, -proposal.size_bytes)
        self._metrics.proposal_seconds.observe(self._clock.monotonic_s() - started_s)
        return answer

    def _admit(self, commands: list[Command], now_s: float) -> _Proposal:
        size_bytes = len(_encoder.encode(commands))
        allowed = self._journal.entry_bytes_max - ENTRY_HEAD_BYTES_MAX
        if size_bytes > allowed:
            raise Invalid(f"commands of {size_bytes} bytes are over the {allowed} that fit into a journal entry")
        if self._held >= PROPOSALS_MAX or self._held_bytes + size_bytes > PROPOSAL_BYTES_MAX:
            raise Undelivered(f"overloaded: {self._held} requests of {self._held_bytes} bytes wait already")
        proposal = _Proposal(commands, size_bytes, now_s + WAIT_DEADLINE_S, self._stalls.ticket())
        self._waiting.append(proposal)
        self._changed.set()
        return proposal

    def _hold(self, count: int, size_bytes: int) -> None:
        self._held += count
        self._held_bytes += size_bytes
        self._metrics.held_bytes.set(self._held_bytes)

    def settle(self, entry_id: str, sequence: int, outcomes: list[list[Outcome]]) -> None:
        """The tail has applied the entry: answer its requests. Does nothing for an entry given up or seen before."""
        flight = self._flights.pop(entry_id, None)
        if flight is None:
            return
        self._metrics.append_seconds.observe(self._clock.monotonic_s() - flight.started_s)
        for proposal, answers in zip(flight.proposals, outcomes, strict=True):
            if not proposal.answer.done():
                proposal.answer.set_result((sequence, answers))
        flight.seen.set()
        self._changed.set()

    async def run(self) -> None:
        """Append what is proposed, until cancelled; `Halted` when there is no journal any more."""
        async with asyncio.TaskGroup() as appends:
            while True:
                while not self._waiting or len(self._flights) >= APPENDS_IN_FLIGHT_MAX:
                    self._changed.clear()
                    await self._changed.wait()
                proposals = self._take()
                if proposals:
                    appends.create_task(self._append(self._board(proposals)))

    def _take(self) -> list[_Proposal]:
        """The proposals that go into the next entry; those that nobody waits for any more fall away."""
        taken: list[_Proposal] = []
        count = size_bytes = 0
        now_s = self._clock.monotonic_s()
        while self._waiting:
            following = self._waiting[0]
            is_full = count + len(following.commands) > ENTRY_COMMANDS_MAX
            if taken and (is_full or size_bytes + following.size_bytes > ENTRY_BYTES_WANTED):
                break
            proposal = self._waiting.popleft()
            if not self._stalls.is_good(proposal.ticket):
                proposal.fail(Undelivered(STOOD_STILL))
            elif proposal.expires_s <= now_s:
                proposal.fail(Undelivered(f"the journal had no room for it within {WAIT_DEADLINE_S:g} s"))
            elif not proposal.answer.done():
                taken.append(proposal)
                count += len(proposal.commands)
                size_bytes += proposal.size_bytes
        return taken

    def _board(self, proposals: list[_Proposal]) -> _Flight:
        entry_id = f"{self.author}.{next(self._numbers)}"
        requests = [proposal.commands for proposal in proposals]
        entry = Entry(entry_id, self.author, self._chain.sequence, self._chain.hash, requests)
        started_s = self._clock.monotonic_s()
        flight = _Flight(entry_id, encode_entry(entry), proposals, started_s, proposals[0].ticket)
        self._flights[entry_id] = flight
        self._metrics.entry_requests.observe(len(proposals))
        return flight

    async def _append(self, flight: _Flight) -> None:
        try:
            async with asyncio.timeout(APPEND_DEADLINE_S):
                if await self._append_until_stored(flight):
                    await flight.seen.wait()
                else:
                    self._give_up(flight, STOOD_STILL)
        except TimeoutError:
            self._give_up(flight, f"entry {flight.entry_id} was not seen within {APPEND_DEADLINE_S:g} s")
        except JournalLost as error:
            raise halted_at(self._chain.sequence, error) from error

    async def _append_until_stored(self, flight: _Flight) -> bool:
        """Whether it is stored; else we stood still, and it is too late to send it (again)."""
        while not flight.seen.is_set():
            if not self._stalls.is_good(flight.ticket):
                return False
            try:
                await self._journal.append(flight.entry_id, flight.data)
                return True
            except Unavailable as error:
                log.warning("append_in_doubt", entry=flight.entry_id, error=str(error))
            self._metrics.append_retries.inc()
            await asyncio.sleep(RETRY_MS / 1000)
        return True

    def _give_up(self, flight: _Flight, reason: str) -> None:
        if self._flights.pop(flight.entry_id, None) is None:
            return
        for proposal in flight.proposals:
            proposal.fail(Unavailable(reason))
        self._changed.set()


def _not_ahead(commands: Sequence[Command], now_ms: int) -> list[Command]:
    """The commands with no time later than this, so that one sender's broken clock does not become the machine's."""
    return [
        msgspec.structs.replace(command, now_ms=now_ms) if command.now_ms > now_ms else command for command in commands
    ]
