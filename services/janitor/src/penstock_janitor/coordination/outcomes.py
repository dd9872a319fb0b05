"""Checks the outcomes of commands, because each command may be rejected."""

from typing import TypeVar

from penstock.contracts.commands import Outcome, Rejected
from penstock.contracts.errors import Conflict

Accepted = TypeVar("Accepted")


def accepted(outcome: Outcome, kind: type[Accepted], command: str) -> Accepted:
    """The outcome of an accepted command, which is of this kind; `Conflict` if the command is rejected."""
    if isinstance(outcome, Rejected):
        raise Conflict(f"the sequencers reject {command}: {outcome.rejection.name} {outcome.message}".rstrip())
    assert isinstance(outcome, kind), f"a sequencer answered {outcome} to {command}"
    return outcome
