"""Sends a change of users or access control lists, and returns when this gateway has it."""

from collections.abc import Callable
from typing import Protocol

from penstock.contracts.commands import Command, Outcome, Rejected
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_gateway.kafka.feature_levels import until_level
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.security.security_cache import HasSecurity

DEADLINE_S = 30.0  # the requests have no time-out field
ATTEMPTS_MAX = 3  # a change is rejected as STALE if this gateway has not seen a newer one
NOT_YET = "users and access control lists are not supported until all sequencers of the cluster are upgraded"

# Makes the command from the present time in ms and the newest entry that this gateway has seen.
MakeCommand = Callable[[int, int], Command]


class Needs(HasClock, HasSecurity, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def change_security(gateway: Needs, make: MakeCommand) -> Outcome:
    """The outcome of one command; the rejection OUTCOME_UNKNOWN if no sequencer answers in time.

    After it the gateway's cache has the change, so a client reads its own write.
    """
    await until_level(gateway, SECURITY_LEVEL)
    level = gateway.sequencer.seen_level
    if level is not None and level < SECURITY_LEVEL:
        return Rejected(Rejection.UNSUPPORTED_YET, NOT_YET)
    outcome = await _attempt(gateway, make)
    for _ in range(ATTEMPTS_MAX - 1):
        if not (isinstance(outcome, Rejected) and outcome.rejection == Rejection.STALE):
            break
        outcome = await _attempt(gateway, make)
    await gateway.security.refresh()
    return outcome


async def _attempt(gateway: Needs, make: MakeCommand) -> Outcome:
    command = make(gateway.clock.now_ms(), gateway.sequencer.seen_sequence)
    try:
        (outcome,) = await gateway.sequencer.command([command], deadline_s=DEADLINE_S)
    except Unavailable as error:
        return Rejected(Rejection.OUTCOME_UNKNOWN, str(error))
    except Invalid as error:  # it is larger than a message
        return Rejected(Rejection.INVALID_REQUEST, str(error))
    return outcome
