"""Sends a change of users, access control lists or delegation tokens, and returns when this gateway has it."""

from collections.abc import Callable
from typing import Protocol

from penstock.contracts.commands import Command, Outcome, Rejected
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.levels import SECURITY_LEVEL, TOKENS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_gateway.kafka.feature_levels import until_level
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.security.delegation.delegation_tokens import HasTokens
from penstock_gateway.security.security_cache import HasSecurity
from penstock_gateway.security.state_copy import StateCopy

DEADLINE_S = 30.0  # the requests have no time-out field
ATTEMPTS_MAX = 3  # a change is rejected as STALE if this gateway has not seen a newer one
NOT_YET = "this change is not supported until all sequencers of the cluster are upgraded"

# Makes the command from the present time in ms and the newest entry that this gateway has seen.
MakeCommand = Callable[[int, int], Command]


class Needs(HasClock, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


class NeedsSecurity(Needs, HasSecurity, Protocol):
    """The parts for a change of users or access control lists."""


class NeedsTokens(Needs, HasTokens, Protocol):
    """The parts for a change of delegation tokens."""


async def change_security(gateway: NeedsSecurity, make: MakeCommand) -> Outcome:
    """The outcome of one command; the rejection OUTCOME_UNKNOWN if no sequencer answers in time.

    After it the gateway's cache has the change, so a client reads its own write.
    """
    return await _change(gateway, make, SECURITY_LEVEL, gateway.security)


async def change_token(gateway: NeedsTokens, make: MakeCommand) -> Outcome:
    """As `change_security`, for a change of a delegation token."""
    return await _change(gateway, make, TOKENS_LEVEL, gateway.delegation_tokens.cache)


async def _change(gateway: Needs, make: MakeCommand, needed_level: int, copy: StateCopy) -> Outcome:
    await until_level(gateway, needed_level)
    level = gateway.sequencer.seen_level
    if level is not None and level < needed_level:
        return Rejected(Rejection.UNSUPPORTED_YET, NOT_YET)
    outcome = await _attempt(gateway, make)
    for _ in range(ATTEMPTS_MAX - 1):
        if not (isinstance(outcome, Rejected) and outcome.rejection == Rejection.STALE):
            break
        outcome = await _attempt(gateway, make)
    await copy.refresh()
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
