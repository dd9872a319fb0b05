"""The level that the cluster has reached: what all its replicas understand (contracts/levels.py)."""

from penstock.contracts.commands import Done, RaiseLevel, Refused
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.refusals import Refusal
from sequencer.core.state import Changes, State


def raise_level(state: State, command: RaiseLevel, changes: Changes) -> Done | Refused:
    """The level only ever rises."""
    if command.level <= state.level:
        return Refused(Refusal.INVALID_REQUEST, f"level {state.level} is reached already")
    if state.level < JANITOR_LEVEL <= command.level:
        state.segments.begin_queue(state.sequence)
    state.level = command.level
    return Done()
