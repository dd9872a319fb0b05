"""Sends the commands of the group APIs to the sequencers, and waits for the end of a rebalance."""

from typing import Protocol

from penstock.contracts.commands import Command, Outcome, Rejected, Waiting
from penstock.contracts.commands.group_sizes import oversize
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.queries.groups import GroupWaitQuery, GroupWaitView
from penstock.contracts.rejections import Rejection
from penstock_gateway.coordination.known_outage import HasKnownOutage
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer

COMMAND_DEADLINE_S = 10.0
WAIT_MS = 1_000  # per query, so that the gateway notices a dead replica and a closed connection
# Added to the time-out of a rebalance: the sequencers need this time to remove the members that did not rejoin.
WAIT_GRACE_S = 10.0
WAIT_S_MAX = 1_800.0  # the longest session time-out that a group may have


class Needs(HasClock, HasKnownOutage, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def group_command(
    gateway: Needs, client: Client, command: Command, deadline_s: float = COMMAND_DEADLINE_S
) -> Outcome:
    """The outcome of a group's command; `Rejected` if it is too large for the journal; `Unavailable` if unknown."""
    rejected = oversize(command)
    if rejected is not None:
        return rejected
    try:
        reply = await gateway.sequencer.command_reply([command], deadline_s=deadline_s)
    except Invalid as error:
        return Rejected(Rejection.INVALID_REQUEST, str(error))
    gateway.known_outage.record_answer()
    (outcome,) = reply.outcomes
    client.record_outcome(outcome, reply.sequence)
    return outcome


async def group_answer(
    gateway: Needs, client: Client, kind: str, group_id: str, outcome: Outcome, timeout_ms: int
) -> Outcome:
    """The outcome. If it is `Waiting`, wait for the final one for `timeout_ms`, then raise `Unavailable`."""
    timeout_s = min(max(timeout_ms, 0) / 1000 + WAIT_GRACE_S, WAIT_S_MAX)
    deadline_s = gateway.clock.monotonic_s() + timeout_s
    while isinstance(outcome, Waiting):
        if client.is_leaving:
            raise Unavailable("this broker is shutting down: connect to another broker")
        if gateway.clock.monotonic_s() >= deadline_s:
            raise Unavailable(f"the rebalance of group {group_id!r} did not finish the {kind} within {timeout_s:g} s")
        query = GroupWaitQuery(0, kind, group_id, outcome.member_id, outcome.generation, WAIT_MS)
        outcome = (await gateway.sequencer.query("group_wait", query, GroupWaitView)).outcome
    return outcome
