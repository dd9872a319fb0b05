"""Users and access control lists over NATS, without a login."""

from collections.abc import Sequence

from penstock.cli.security.administration import Credential, NewPassword, ScramUser
from penstock.cli.security.client import SecurityClient
from penstock.contracts.acls import AclBinding, AclFilter, matches
from penstock.contracts.commands import (
    AclsDeleted,
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    Outcome,
    PerItem,
    ScramDeletion,
    ScramUpsertion,
)
from penstock.contracts.errors import Invalid
from penstock.contracts.scram_keys import verifier_of_salted


class NatsAdmin:
    """The state of the sequencers. Only verifiers of passwords leave this process."""

    def __init__(self, client: SecurityClient) -> None:
        self._client = client

    async def users(self) -> list[ScramUser]:
        users, _ = await self._client.read()
        return [
            ScramUser(user.name, [Credential(each.mechanism, each.iterations) for each in user.verifiers])
            for user in users
        ]

    async def set_passwords(self, passwords: Sequence[NewPassword]) -> None:
        upsertions = [
            ScramUpsertion(
                each.name, verifier_of_salted(each.mechanism, each.salted_password, each.salt, each.iterations)
            )
            for each in passwords
        ]
        check(await self._client.change(lambda now_ms, seen: AlterScramCredentials(now_ms, upsertions, [], seen)))

    async def delete_credentials(self, deletions: Sequence[ScramDeletion]) -> None:
        wanted = list(deletions)
        check(await self._client.change(lambda now_ms, seen: AlterScramCredentials(now_ms, [], wanted, seen)))

    async def bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        _, bindings = await self._client.read()
        return [each for each in bindings if any(matches(wanted, each) for wanted in filters)]

    async def create_bindings(self, bindings: Sequence[AclBinding]) -> None:
        wanted = list(bindings)
        check(await self._client.change(lambda now_ms, seen: CreateAcls(now_ms, wanted, seen)))

    async def delete_bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        wanted = list(filters)
        outcome = await self._client.change(lambda now_ms, seen: DeleteAcls(now_ms, wanted, seen))
        removed = outcome.deleted if isinstance(outcome, AclsDeleted) else []
        return list(dict.fromkeys(each for found in removed for each in found))


def check(outcome: Outcome) -> None:
    """`Invalid` if an item was rejected."""
    rejected = [each for each in outcome.rejections if each] if isinstance(outcome, PerItem) else []
    if rejected:
        raise Invalid(f"the change was rejected: {rejected[0].name}; something may have been changed meanwhile")
