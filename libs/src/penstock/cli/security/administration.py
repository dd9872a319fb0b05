"""Users, access control lists, quotas and tokens as a command sees and changes them, over any protocol."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.contracts.acls import AclBinding, AclFilter
from penstock.contracts.commands import QuotaChange, ScramDeletion, ScramMechanism
from penstock.contracts.configs.quotas import Entity


class Credential(msgspec.Struct, frozen=True):
    """A way in which a user can log in."""

    mechanism: ScramMechanism
    iterations: int


class ScramUser(msgspec.Struct, frozen=True):
    """A user, without any key."""

    name: str
    credentials: Sequence[Credential]


class NewPassword(msgspec.Struct, frozen=True):
    """A password of a user for one mechanism, as Kafka's message has it."""

    name: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted_password: bytes


class Token(msgspec.Struct, frozen=True):
    """A delegation token, without its password. Users have no `User:`. Times are in ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: Sequence[str]
    expiry_ms: int
    max_ms: int
    is_revoked: bool = False


class SecurityAdmin(Protocol):
    """The security of one cluster, and its quotas. A rejected change is `Invalid` with the reason."""

    async def users(self) -> list[ScramUser]: ...

    async def set_passwords(self, passwords: Sequence[NewPassword]) -> None: ...

    async def delete_credentials(self, deletions: Sequence[ScramDeletion]) -> None: ...

    async def bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]: ...

    async def create_bindings(self, bindings: Sequence[AclBinding]) -> None: ...

    async def delete_bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]: ...

    async def quotas(self) -> Mapping[Entity, Mapping[str, str]]: ...

    async def alter_quotas(self, entity: Entity, changes: Sequence[QuotaChange], *, is_trial: bool = False) -> None: ...

    async def tokens(self) -> list[Token]: ...

    async def revoke_token(self, token_id: str) -> None: ...
