"""The users and access control lists in this gateway's memory.

A query names the state that the gateway has, so the answer is short while nothing has changed.
"""

from collections.abc import Sequence
from typing import Protocol

import structlog

from penstock.contracts.acls import AclBinding
from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.contracts.queries.security import SecurityQuery, SecurityView, User
from penstock_gateway.security.state_copy import DEFAULT_LIMITS, CopyLimits, Sequencers, StateCopy

log = structlog.get_logger()


class SecurityCache(StateCopy):
    """Users with their verifiers, and the bindings of access control lists.

    Until they are known no login and no authorized request may be accepted.
    """

    def __init__(self, sequencer: Sequencers, limits: CopyLimits = DEFAULT_LIMITS) -> None:
        super().__init__("security", SECURITY_LEVEL, sequencer, limits)
        self.bindings: Sequence[AclBinding] = ()
        self._users: dict[str, dict[ScramMechanism, ScramVerifier]] = {}

    def verifier(self, user: str, mechanism: ScramMechanism) -> ScramVerifier | None:
        """The user's verifier of this mechanism, None if there is none."""
        return self._users.get(user, {}).get(mechanism)

    def users(self) -> list[User]:
        """All users, in the order of their names."""
        return [User(name, list(verifiers.values())) for name, verifiers in self._users.items()]

    async def _refresh(self) -> None:
        """Query the pages after those that are here; a change begins with the first page of the new state."""
        users: list[User] = []
        bindings: list[AclBinding] = []
        sequence, count = self.sequence, len(self._users) + len(self.bindings)
        for _ in range(self._limits.pages_max):
            view = await self._query(SecurityQuery(0, count, sequence, fresh=True), SecurityView)
            if view.altered_sequence != sequence:
                users, bindings, count = [], [], 0
                sequence = view.altered_sequence
            users += view.users
            bindings += view.bindings
            count += len(view.users) + len(view.bindings)
            if view.is_last:
                self._apply(sequence, users, bindings)
                return
        raise Unavailable("users or access control lists change faster than they can be read")

    def _apply(self, sequence: int, users: list[User], bindings: list[AclBinding]) -> None:
        self.is_known = True
        if sequence == self.sequence:
            return
        self._users = {user.name: {each.mechanism: each for each in user.verifiers} for user in users}
        self.bindings = tuple(bindings)
        self.sequence = sequence
        log.info("security_changed", sequence=sequence, users=len(users), bindings=len(bindings))


class HasSecurity(Protocol):
    @property
    def security(self) -> SecurityCache: ...
