"""Reads and changes users, access control lists, tokens and quotas over NATS, for commands of an administrator.

It needs no gateway and no login. So it also works when no login does, or no user may change anything.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.cli.running import connected_bus
from penstock.contracts.acls import AclBinding
from penstock.contracts.commands import Command, DelegationToken, Outcome, Rejected
from penstock.contracts.configs.quotas import Entity, entity_of
from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.queries.delegation_tokens import TokensQuery, TokensView
from penstock.contracts.queries.quotas import ClientQuotasQuery, ClientQuotasView
from penstock.contracts.queries.security import SecurityQuery, SecurityView, User
from penstock.contracts.queries.topics import ValidateQuery, ValidateView
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.spark.config import ClusterAddress

DEADLINE_S = 10.0
PAGES_MAX = 1_000
ATTEMPTS_MAX = 3  # another administrator may change something between the read and the change

# Makes the command from the present time in ms and the newest entry that was seen.
MakeCommand = Callable[[int, int], Command]


class SecurityClient:
    """Users, access control lists and quotas of one cluster."""

    def __init__(self, sequencer: SequencerClient) -> None:
        self._sequencer = sequencer
        self._clock = SystemClock()

    async def read(self) -> tuple[list[User], list[AclBinding]]:
        """All users by name, and all bindings in the order in which they were made."""
        users: list[User] = []
        bindings: list[AclBinding] = []
        sequence = 0
        for _ in range(PAGES_MAX):
            query = SecurityQuery(0, len(users) + len(bindings), sequence, fresh=True)
            view = await self._sequencer.query("security", query, SecurityView, deadline_s=DEADLINE_S)
            if view.altered_sequence != sequence:
                users, bindings, sequence = [], [], view.altered_sequence
            users += view.users
            bindings += view.bindings
            if view.is_last:
                return users, bindings
        raise Unavailable("users or access control lists change faster than they can be read")

    async def read_tokens(self) -> list[DelegationToken]:
        """All delegation tokens, in the order in which they were changed."""
        tokens: list[DelegationToken] = []
        known_sequence = 0
        for _ in range(PAGES_MAX):
            query = TokensQuery(0, known_sequence, fresh=True)
            view = await self._sequencer.query("delegation_tokens", query, TokensView, deadline_s=DEADLINE_S)
            tokens = [*([] if view.is_whole else tokens), *view.tokens]
            if view.is_last:  # a token that was changed meanwhile came twice
                return list({each.token_id: each for each in tokens}.values())
            known_sequence = view.tokens[-1].altered_sequence
        raise Unavailable("delegation tokens change faster than they can be read")

    async def read_quotas(self) -> dict[Entity, dict[str, str]]:
        """All client quotas by entity."""
        query = ClientQuotasQuery(0, fresh=True)
        view = await self._sequencer.query("client_quotas", query, ClientQuotasView, deadline_s=DEADLINE_S)
        return {entity_of([(part.kind, part.name) for part in each.entity]): each.values for each in view.entries}

    async def change(self, make: MakeCommand) -> Outcome:
        """The outcome of the command; `Invalid` with the reason if it is rejected as a whole."""
        outcome = await self._attempt(make)
        for _ in range(ATTEMPTS_MAX - 1):
            if not (isinstance(outcome, Rejected) and outcome.rejection == Rejection.STALE):
                break
            outcome = await self._attempt(make)
        if isinstance(outcome, Rejected):
            raise Invalid(outcome.message or outcome.rejection.name)
        return outcome

    async def validate(self, make: MakeCommand) -> None:
        """Only check the command; `Invalid` with the reason if it would be rejected."""
        query = ValidateQuery(0, [make(self._clock.now_ms(), -1)], fresh=True)
        view = await self._sequencer.query("validate", query, ValidateView, deadline_s=DEADLINE_S)
        for outcome in view.outcomes:
            if isinstance(outcome, Rejected):
                raise Invalid(outcome.message or outcome.rejection.name)

    async def _attempt(self, make: MakeCommand) -> Outcome:
        command = make(self._clock.now_ms(), self._sequencer.seen_sequence)
        (outcome,) = await self._sequencer.command([command], deadline_s=DEADLINE_S)
        return outcome


@asynccontextmanager
async def connected_security(cluster: ClusterAddress, name: str) -> AsyncIterator[SecurityClient]:
    """The users and access control lists of a cluster for the length of a block."""
    async with connected_bus(cluster, name) as bus:
        yield SecurityClient(SequencerClient(bus, cluster.cluster, SystemClock()))
