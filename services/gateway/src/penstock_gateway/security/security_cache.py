"""The users and access control lists in this gateway's memory.

Every announcement contains the sequence of the entry that changed them last. A gateway queries them at its start, and
when it sees a newer sequence. While no sequencer answers it keeps those that it has. A query names the state that the
gateway has, so the answer is short while nothing has changed.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.acls import AclBinding
from penstock.contracts.commands.security import ScramMechanism, ScramVerifier
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.contracts.queries.security import SecurityQuery, SecurityView, User

log = structlog.get_logger()


class SecurityCacheLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the cache waits for sequencers."""

    query_deadline_s: float = 5.0
    retry_s: float = 1.0
    pages_max: int = 1_000  # of one refresh; all users and bindings are fewer than 100


DEFAULT_LIMITS = SecurityCacheLimits()


class Sequencers(Protocol):
    """The part of the sequencer client that the cache needs: queries, and the cluster's level."""

    @property
    def seen_level(self) -> int | None: ...

    async def query(
        self, name: str, query: msgspec.Struct, view: type[SecurityView], *, deadline_s: float | None = None
    ) -> SecurityView: ...


class SecurityCache:
    """Users with their verifiers, and the bindings of access control lists.

    `is_known` is False until a sequencer has answered once, or the cluster is at a level without users. Until then no
    login and no authorized request may be accepted. `sequence` is that of the newest change that is applied here.
    """

    def __init__(self, sequencer: Sequencers, limits: SecurityCacheLimits = DEFAULT_LIMITS) -> None:
        self.is_known = False
        self.sequence = 0
        self.bindings: Sequence[AclBinding] = ()
        self._sequencer = sequencer
        self._limits = limits
        self._users: dict[str, dict[ScramMechanism, ScramVerifier]] = {}
        self._wanted_sequence = 0  # of the newest change that was announced
        self._changed = asyncio.Event()
        self._changed.set()  # the first query is due
        self._refreshing = asyncio.Lock()  # an answer is never replaced by an older one

    def verifier(self, user: str, mechanism: ScramMechanism) -> ScramVerifier | None:
        """The user's verifier of this mechanism, None if there is none."""
        return self._users.get(user, {}).get(mechanism)

    def users(self) -> list[User]:
        """All users, in the order of their names."""
        return [User(name, list(verifiers.values())) for name, verifiers in self._users.items()]

    def record(self, sequence: int) -> None:
        """Record that the entry with this sequence changed users or bindings."""
        if sequence > max(self._wanted_sequence, self.sequence):
            self._wanted_sequence = sequence
            self._changed.set()

    async def run(self) -> None:
        """Query users and bindings now and whenever they have changed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted_sequence
            if not await self.refresh() or self.sequence < wanted:
                await asyncio.sleep(self._limits.retry_s)
                self._changed.set()

    async def refresh(self) -> bool:
        """Query users and bindings now, and return whether the cache has all changes that were made before.

        It keeps those that it has if no sequencer answers.
        """
        async with self._refreshing:
            try:
                await self._refresh()
            except Unavailable as error:
                level = self._sequencer.seen_level
                if level is not None and level < SECURITY_LEVEL:  # earlier sequencers know neither users nor bindings
                    self.is_known = True
                    return True
                log.warning("security_query_failed", error=str(error))
                return False
            return True

    async def _refresh(self) -> None:
        """Query the pages after those that are here; a change begins with the first page of the new state."""
        users: list[User] = []
        bindings: list[AclBinding] = []
        sequence, count = self.sequence, len(self._users) + len(self.bindings)
        for _ in range(self._limits.pages_max):
            query = SecurityQuery(0, count, sequence, fresh=True)
            view = await self._sequencer.query(
                "security", query, SecurityView, deadline_s=self._limits.query_deadline_s
            )
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
