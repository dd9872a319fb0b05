"""What the group APIs share: commands to the sequencers, and waiting for what a rebalance brings."""

from typing import Protocol

from penstock.contracts.commands import Command, Outcome, Rejected, Waiting
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.queries.groups import GroupWaitQuery, GroupWaitView
from penstock.contracts.rejections import Rejection
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer

COMMAND_DEADLINE_S = 10.0
WAIT_MS = 1_000  # per question, so that a replica that died and a connection that ends are noticed
# A member waits for the others as long as they may take, and for the sequencers to notice that they do not come.
WAIT_GRACE_S = 10.0
WAIT_S_MAX = 1_800.0  # the longest session time-out there is


class Needs(HasClock, HasSequencer, Protocol):
    """What this module uses of the gateway."""


async def group_command(gateway: Needs, command: Command) -> Outcome:
    """The outcome of a group's command; a refusal for one too large for the journal; `Unavailable` if unknown."""
    try:
        (outcome,) = await gateway.sequencer.command([command], deadline_s=COMMAND_DEADLINE_S)
    except Invalid as error:
        return Rejected(Rejection.INVALID_REQUEST, str(error))
    return outcome


async def group_answer(
    gateway: Needs, client: Client, kind: str, group_id: str, outcome: Outcome, patience_ms: int
) -> Outcome:
    """The outcome, or what a `Waiting` one becomes within `patience_ms`; `Unavailable` if that never comes."""
    patience_s = min(max(patience_ms, 0) / 1000 + WAIT_GRACE_S, WAIT_S_MAX)
    deadline_s = gateway.clock.monotonic_s() + patience_s
    while isinstance(outcome, Waiting):
        if client.is_leaving:
            raise Unavailable("this gateway is going away")
        if gateway.clock.monotonic_s() >= deadline_s:
            raise Unavailable(f"no answer to a {kind} of group {group_id!r} within {patience_s:g} s")
        query = GroupWaitQuery(0, kind, group_id, outcome.member_id, outcome.generation, WAIT_MS)
        outcome = (await gateway.sequencer.query("group_wait", query, GroupWaitView)).outcome
    return outcome
