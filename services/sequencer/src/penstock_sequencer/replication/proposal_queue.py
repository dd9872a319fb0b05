"""Decides which proposals are admitted and which share the next entry; it does no I/O.

Proposals that wait while appends are under way share the next entry (group commit). They keep their order of arrival,
and no proposal is split over two entries.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from penstock.contracts.commands import Command, Outcome
from penstock.contracts.errors import Invalid, Unavailable, Undelivered

ENTRY_HEAD_BYTES_MAX = 1_024  # of an entry, in addition to its commands, with the journal's headers
STALLED = "the process was stalled while the commands waited here"


class ProposerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many proposals one replica holds, and how long each step into the journal may take."""

    appends_in_flight_max: int = 4  # keeps the disk busy while an answer travels; more only makes entries smaller
    # About 6,000 batches. They are applied in 30 ms, so no entry blocks the event loop for long.
    entry_bytes_wanted: int = 256 * 1024
    entry_commands_max: int = 1_024  # the same limit for many small commands; a larger request has its own entry
    proposals_max: int = 16_384  # requests not answered yet; it is better to ask again than to wait behind more
    proposal_bytes_max: int = 64 * 1024 * 1024  # eight of the largest requests
    wait_deadline_s: float = 2.0  # for a place in an entry; senders ask another replica after one second
    append_deadline_s: float = 10.0  # for an entry to return; well within the server's duplicate window
    retry_ms: int = 50  # between two appends of one entry


PROPOSER_LIMITS = ProposerLimits()


class Proposal:
    """The commands of one request, and the future of their outcomes."""

    __slots__ = ("answer", "commands", "expires_s", "size_bytes", "ticket", "trace")

    def __init__(
        self, commands: list[Command], size_bytes: int, expires_s: float, ticket: int, trace: str = ""
    ) -> None:
        self.commands = commands
        self.size_bytes = size_bytes
        self.expires_s = expires_s
        self.ticket = ticket
        self.trace = trace  # the span that waits for the outcomes; "" for none
        self.answer: asyncio.Future[tuple[int, list[Outcome]]] = asyncio.get_running_loop().create_future()

    def fail(self, error: Unavailable) -> None:
        """Answer with an error, unless it is answered already."""
        if not self.answer.done():
            self.answer.set_exception(error)


class ProposalQueue:
    """Proposals that wait for a place in an entry, and the size of all proposals that are not answered."""

    def __init__(self, limits: ProposerLimits) -> None:
        self.held_bytes = 0  # of proposals not answered yet, waiting or in an entry
        self._limits = limits
        self._held = 0
        self._waiting: deque[Proposal] = deque()

    def __len__(self) -> int:
        """How many proposals wait for a place."""
        return len(self._waiting)

    def check(self, size_bytes: int, entry_bytes_max: int) -> None:
        """`Invalid` if commands of this size fit no entry, `Undelivered` if too many are held already."""
        allowed = entry_bytes_max - ENTRY_HEAD_BYTES_MAX
        if size_bytes > allowed:
            raise Invalid(f"commands of {size_bytes} bytes are over the {allowed} that fit in a journal entry")
        if self._held >= self._limits.proposals_max or self.held_bytes + size_bytes > self._limits.proposal_bytes_max:
            raise Undelivered(f"overloaded: {self._held} requests of {self.held_bytes} bytes are waiting")

    def add(self, proposal: Proposal) -> None:
        """Queue an admitted proposal; it is held until `release`."""
        self._held += 1
        self.held_bytes += proposal.size_bytes
        self._waiting.append(proposal)

    def release(self, proposal: Proposal) -> None:
        """Stop counting a proposal that is answered, or whose sender is gone."""
        self._held -= 1
        self.held_bytes -= proposal.size_bytes

    def take(self, now_s: float, is_good: Callable[[int], bool]) -> list[Proposal]:
        """The proposals for the next entry. Proposals that expired, or waited during a stall, fail."""
        taken: list[Proposal] = []
        count = size_bytes = 0
        while self._waiting:
            following = self._waiting[0]
            is_full = count + len(following.commands) > self._limits.entry_commands_max
            if taken and (is_full or size_bytes + following.size_bytes > self._limits.entry_bytes_wanted):
                break
            proposal = self._waiting.popleft()
            if not is_good(proposal.ticket):
                proposal.fail(Undelivered(STALLED))
            elif proposal.expires_s <= now_s:
                text = f"the journal did not accept it within {self._limits.wait_deadline_s:g} s"
                proposal.fail(Undelivered(text))
            elif not proposal.answer.done():
                taken.append(proposal)
                count += len(proposal.commands)
                size_bytes += proposal.size_bytes
        return taken
