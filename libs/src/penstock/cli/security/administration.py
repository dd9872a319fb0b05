"""Users and access control lists as a command sees and changes them, over any protocol."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.contracts.acls import AclBinding, AclFilter
from penstock.contracts.commands import ScramDeletion, ScramMechanism


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


class SecurityAdmin(Protocol):
    """Users and access control lists of one cluster. A rejected change is `Invalid` with the reason."""

    async def users(self) -> list[ScramUser]: ...

    async def set_passwords(self, passwords: Sequence[NewPassword]) -> None: ...

    async def delete_credentials(self, deletions: Sequence[ScramDeletion]) -> None: ...

    async def bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]: ...

    async def create_bindings(self, bindings: Sequence[AclBinding]) -> None: ...

    async def delete_bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]: ...
