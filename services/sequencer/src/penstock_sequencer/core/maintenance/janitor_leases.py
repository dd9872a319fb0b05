"""Chores: which janitor does what, and when it was done last, so that several share the work.

They share work and guard nothing: whatever a janitor does without a chore is judged by what it does it to.
"""

from penstock.contracts.commands import CHORES, NO_CHORE, ChoreTaken, Done, EndChore, Refused, TakeChore
from penstock.contracts.rejections import Refusal
from penstock_sequencer.core.state.cluster import Changes, Lease, State
from penstock_sequencer.core.state.limits import (
    CHORE_LEASE_MAX_MS,
    CHORE_PERIOD_MAX_MS,
    CLAIM_NAMES_LENGTH_MAX,
    INTEGER_MAX,
)


def take_chore(state: State, command: TakeChore, changes: Changes) -> ChoreTaken | Refused:
    """The due chore that was done longest ago is the holder's for its lease; one that it has already comes first.

    So a command that is sent again takes no second one.
    """
    objection = _objection(command)
    if objection is not None:
        return objection
    _forget_leases(state)
    number = _chore_of(state, command)
    if number == NO_CHORE:
        number, due_ms = _most_due(state, command)
        if due_ms > state.clock_ms or command.number != NO_CHORE:
            return ChoreTaken(NO_CHORE, state.clock_ms, due_ms)
    state.chore_leases[number] = Lease(command.holder, state.clock_ms + command.lease_ms)
    return ChoreTaken(number, state.clock_ms)


def end_chore(state: State, command: EndChore, changes: Changes) -> Done:
    """The holder's chore is free again; if it is done, its period begins."""
    if _is_holders(state, command.number, command.holder):
        del state.chore_leases[command.number]
        if command.done:
            state.chores_ended_ms[command.number] = state.clock_ms
    return Done()


def _chore_of(state: State, command: TakeChore) -> int:
    """What the holder has already: the chore that it names, or else the first in its range."""
    held = [number for number, lease in state.chore_leases.items() if lease.holder == command.holder]
    if command.number != NO_CHORE:
        return command.number if command.number in held else NO_CHORE
    return min((number for number in held if command.first <= number < command.stop), default=NO_CHORE)


def _most_due(state: State, command: TakeChore) -> tuple[int, int]:
    """The chore that nobody has and that was done longest ago; and when it is due, or another one may be free."""
    ended_ms = state.chores_ended_ms[command.first : command.stop]
    free_ms = INTEGER_MAX
    for number, lease in state.chore_leases.items():
        if command.first <= number < command.stop:
            ended_ms[number - command.first] = INTEGER_MAX
            free_ms = min(free_ms, lease.until_ms)
    longest_ago_ms = min(ended_ms)
    if longest_ago_ms == INTEGER_MAX:
        return NO_CHORE, free_ms
    due_ms = longest_ago_ms + command.period_ms if longest_ago_ms else 0
    return command.first + ended_ms.index(longest_ago_ms), min(due_ms, free_ms)


def _is_holders(state: State, number: int, holder: str) -> bool:
    lease = state.chore_leases.get(number)
    return lease is not None and lease.holder == holder


def _forget_leases(state: State) -> None:
    """Leases that are over go; there are at most CHORES to look at."""
    over = [number for number, lease in state.chore_leases.items() if lease.until_ms <= state.clock_ms]
    for number in over:
        del state.chore_leases[number]


def _objection(command: TakeChore) -> Refused | None:
    if not 0 < len(command.holder) <= CLAIM_NAMES_LENGTH_MAX:
        return Refused(Refusal.INVALID_REQUEST, f"a name of {len(command.holder)} letters")
    if not 0 <= command.first < command.stop <= CHORES:
        return Refused(Refusal.INVALID_REQUEST, f"there are no chores from {command.first} to before {command.stop}")
    if not 0 <= command.period_ms <= CHORE_PERIOD_MAX_MS or not 0 < command.lease_ms <= CHORE_LEASE_MAX_MS:
        return Refused(Refusal.INVALID_REQUEST, f"a lease of {command.lease_ms} ms every {command.period_ms} ms")
    return None
