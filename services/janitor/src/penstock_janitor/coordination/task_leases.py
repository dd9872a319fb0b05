"""Task leases in the journal, which give each task to one janitor. A dry run has its own, in memory."""

import contextlib
from typing import Protocol

import msgspec

from penstock.contracts.commands import NO_TASK, Command, EndTaskLease, TakeTaskLease, TaskLeaseTaken
from penstock.contracts.errors import Conflict, PenstockError
from penstock.contracts.queries.janitor import UsageQuery, UsageView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_janitor.coordination.outcomes import accepted

COMMAND_DEADLINE_S = 30.0


class TaskLeaseLost(Conflict):
    """Another janitor has the task, because this one worked for longer than its lease."""


class TaskKind(msgspec.Struct, frozen=True):
    """Tasks of one kind, from `first` to before `stop`; each is due once in `period_ms`."""

    first: int
    stop: int
    period_ms: int


class LeasedTasks(msgspec.Struct, frozen=True):
    """Tasks that this janitor holds. If it holds none, `due_ms` is when one may be due, by the journal's clock."""

    kind: TaskKind
    numbers: list[int]
    clock_ms: int  # the journal's
    due_ms: int = 0

    @property
    def wait_s(self) -> float:
        """The time until a task may be due."""
        return max(self.due_ms - self.clock_ms, 0) / 1000


class TaskLeases(Protocol):
    """Gives tasks to this janitor."""

    async def take(self, kind: TaskKind, count: int = 1) -> LeasedTasks:
        """Lease up to `count` tasks that are due; the task that was done longest ago comes first."""

    async def renew(self, leased: LeasedTasks) -> None:
        """Renew leases that run out; `TaskLeaseLost` if another janitor has one of the tasks."""

    async def end(self, leased: LeasedTasks, *, done: bool) -> None:
        """Report that the tasks are done, or return them undone."""


class _Lease(msgspec.Struct):
    """A leased task: the slot whose name holds it in the journal, and when this janitor last requested the lease."""

    slot: int
    asked_s: float


class JournalTaskLeases:
    """Task leases in the journal."""

    def __init__(self, sequencers: SequencerClient, holder: str, clock: Clock, lease_ms: int) -> None:
        self._sequencers = sequencers
        self._holder = holder
        self._clock = clock
        self._lease_ms = lease_ms
        self._renew_s = lease_ms / 1000 / 3
        self._leases: dict[int, _Lease] = {}

    async def take(self, kind: TaskKind, count: int = 1) -> LeasedTasks:
        asked_s = self._clock.monotonic_s()
        outcomes = await self._request([self._take(kind, slot) for slot in range(count)])
        slots = {outcome.number: slot for slot, outcome in enumerate(outcomes) if outcome.number != NO_TASK}
        self._leases.update({number: _Lease(slot, asked_s) for number, slot in slots.items()})
        return LeasedTasks(kind, list(slots), outcomes[-1].clock_ms, outcomes[-1].due_ms)

    async def renew(self, leased: LeasedTasks) -> None:
        asked_s = self._clock.monotonic_s()
        old = [number for number in leased.numbers if asked_s - self._leases[number].asked_s >= self._renew_s]
        if not old:
            return
        outcomes = await self._request([self._take(leased.kind, self._leases[number].slot, number) for number in old])
        for number, outcome in zip(old, outcomes, strict=True):
            if outcome.number != number:
                raise TaskLeaseLost(f"another janitor now has task {number}")
            self._leases[number].asked_s = asked_s

    async def end(self, leased: LeasedTasks, *, done: bool) -> None:
        now_ms = self._sequencers.seen_clock_ms
        ends: list[Command] = [
            EndTaskLease(now_ms, self._name(self._leases.pop(number).slot), number, done) for number in leased.numbers
        ]
        await self._sequencers.command(ends, deadline_s=COMMAND_DEADLINE_S)

    def _take(self, kind: TaskKind, slot: int, number: int = NO_TASK) -> Command:
        """The time in the command is the journal's, because a janitor's own clock must not decide about leases."""
        now_ms = self._sequencers.seen_clock_ms
        return TakeTaskLease(now_ms, self._name(slot), kind.first, kind.stop, kind.period_ms, self._lease_ms, number)

    def _name(self, slot: int) -> str:
        """Each slot is a separate holder. A holder gets one task of a kind, so a repeated command takes no second."""
        return f"{self._holder}.{slot}"

    async def _request(self, commands: list[Command]) -> list[TaskLeaseTaken]:
        outcomes = await self._sequencers.command(commands, deadline_s=COMMAND_DEADLINE_S)
        return [accepted(outcome, TaskLeaseTaken, "the task lease") for outcome in outcomes]


class OwnTaskLeases:
    """Task leases in memory, for a dry run, which changes nothing in the journal."""

    def __init__(self, sequencers: SequencerClient) -> None:
        self._sequencers = sequencers
        self._ended_ms: dict[int, int] = {}

    async def take(self, kind: TaskKind, count: int = 1) -> LeasedTasks:
        clock_ms = (await self._sequencers.query("usage", UsageQuery(0), UsageView)).clock_ms
        due_ms = {number: self._ended_ms.get(number, 0) + kind.period_ms for number in range(kind.first, kind.stop)}
        due = sorted((when_ms, number) for number, when_ms in due_ms.items() if when_ms <= clock_ms)
        return LeasedTasks(kind, [number for _, number in due[:count]], clock_ms, min(due_ms.values()))

    async def renew(self, leased: LeasedTasks) -> None:
        """No other janitor can have these tasks."""

    async def end(self, leased: LeasedTasks, *, done: bool) -> None:
        if done:
            self._ended_ms.update(dict.fromkeys(leased.numbers, leased.clock_ms))


async def return_undone(tasks: TaskLeases, leased: LeasedTasks) -> None:
    """Return tasks that failed. If the sequencers do not answer either, the leases end by themselves."""
    with contextlib.suppress(PenstockError):
        await tasks.end(leased, done=False)
