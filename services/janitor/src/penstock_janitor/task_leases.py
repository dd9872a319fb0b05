"""Chores: which janitor does what, by leases in the journal; a dry run keeps a book of its own."""

import contextlib
from typing import Protocol

import msgspec

from penstock.contracts.commands import NO_TASK, Command, EndTaskLease, Outcome, Rejected, TakeTaskLease, TaskLeaseTaken
from penstock.contracts.errors import Conflict, PenstockError
from penstock.contracts.queries.janitor import UsageQuery, UsageView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock

COMMAND_DEADLINE_S = 30.0


class TaskLeaseLost(Conflict):
    """Somebody else has it: we took longer than our lease."""


class Kind(msgspec.Struct, frozen=True):
    """Chores of one kind, from `first` to before `stop`, each due once in `period_ms`."""

    first: int
    stop: int
    period_ms: int


class Taken(msgspec.Struct, frozen=True):
    """Chores that are ours for a lease; without any, `due_ms` is when there may be one by the journal's clock."""

    kind: Kind
    numbers: list[int]
    clock_ms: int  # the journal's
    due_ms: int = 0

    @property
    def wait_s(self) -> float:
        """Until one may be due."""
        return max(self.due_ms - self.clock_ms, 0) / 1000


class TaskLeases(Protocol):
    """Hands out chores."""

    async def take(self, kind: Kind, count: int = 1) -> Taken:
        """Up to `count` chores that are due; those done longest ago come first."""

    async def keep(self, taken: Taken) -> None:
        """Go on with them if the lease is running out; `TaskLeaseLost` if one of them is another's by now."""

    async def end(self, taken: Taken, *, done: bool) -> None:
        """They are done, or given up."""


class _Held(msgspec.Struct):
    """One of our chores: which of our hands has it, and when we asked for its lease last."""

    hand: int
    asked_s: float


class JournalTaskLeases:
    """Chores by leases in the journal."""

    def __init__(self, sequencers: SequencerClient, holder: str, clock: Clock, lease_ms: int) -> None:
        self._sequencers = sequencers
        self._holder = holder
        self._clock = clock
        self._lease_ms = lease_ms
        self._renew_s = lease_ms / 1000 / 3
        self._held: dict[int, _Held] = {}

    async def take(self, kind: Kind, count: int = 1) -> Taken:
        asked_s = self._clock.monotonic_s()
        outcomes = await self._ask([self._take(kind, hand) for hand in range(count)])
        hands = {outcome.number: hand for hand, outcome in enumerate(outcomes) if outcome.number != NO_TASK}
        self._held.update({number: _Held(hand, asked_s) for number, hand in hands.items()})
        return Taken(kind, list(hands), outcomes[-1].clock_ms, outcomes[-1].due_ms)

    async def keep(self, taken: Taken) -> None:
        asked_s = self._clock.monotonic_s()
        old = [number for number in taken.numbers if asked_s - self._held[number].asked_s >= self._renew_s]
        if not old:
            return
        outcomes = await self._ask([self._take(taken.kind, self._held[number].hand, number) for number in old])
        for number, outcome in zip(old, outcomes, strict=True):
            if outcome.number != number:
                raise TaskLeaseLost(f"another janitor has chore {number} by now")
            self._held[number].asked_s = asked_s

    async def end(self, taken: Taken, *, done: bool) -> None:
        now_ms = self._sequencers.seen_clock_ms
        ends: list[Command] = [
            EndTaskLease(now_ms, self._name(self._held.pop(number).hand), number, done) for number in taken.numbers
        ]
        await self._sequencers.command(ends, deadline_s=COMMAND_DEADLINE_S)

    def _take(self, kind: Kind, hand: int, number: int = NO_TASK) -> Command:
        """The time in it is one that the journal told: a janitor's own clock decides about nothing there."""
        now_ms = self._sequencers.seen_clock_ms
        return TakeTaskLease(now_ms, self._name(hand), kind.first, kind.stop, kind.period_ms, self._lease_ms, number)

    def _name(self, hand: int) -> str:
        """The journal gives one chore of a kind to one holder, so that a command sent again takes no second one."""
        return f"{self._holder}.{hand}"

    async def _ask(self, commands: list[Command]) -> list[TaskLeaseTaken]:
        outcomes = await self._sequencers.command(commands, deadline_s=COMMAND_DEADLINE_S)
        return [_taken(outcome) for outcome in outcomes]


class OwnTaskLeases:
    """Chores of a janitor that changes nothing, not even who does what."""

    def __init__(self, sequencers: SequencerClient) -> None:
        self._sequencers = sequencers
        self._ended_ms: dict[int, int] = {}

    async def take(self, kind: Kind, count: int = 1) -> Taken:
        clock_ms = (await self._sequencers.query("usage", UsageQuery(0), UsageView)).clock_ms
        due_ms = {number: self._ended_ms.get(number, 0) + kind.period_ms for number in range(kind.first, kind.stop)}
        due = sorted((when_ms, number) for number, when_ms in due_ms.items() if when_ms <= clock_ms)
        return Taken(kind, [number for _, number in due[:count]], clock_ms, min(due_ms.values()))

    async def keep(self, taken: Taken) -> None:
        """Nobody else has them."""

    async def end(self, taken: Taken, *, done: bool) -> None:
        if done:
            self._ended_ms.update(dict.fromkeys(taken.numbers, taken.clock_ms))


async def give_up(tasks: TaskLeases, taken: Taken) -> None:
    """End chores that could not be done; if that cannot be told either, their leases end by themselves."""
    with contextlib.suppress(PenstockError):
        await tasks.end(taken, done=False)


def _taken(outcome: Outcome) -> TaskLeaseTaken:
    if isinstance(outcome, Rejected):
        raise Conflict(f"no chore is given: {outcome.rejection.name} {outcome.message}")
    assert isinstance(outcome, TaskLeaseTaken), f"a sequencer answered {outcome} to a chore"
    return outcome
