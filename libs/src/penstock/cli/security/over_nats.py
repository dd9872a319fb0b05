"""Users, access control lists, quotas and tokens over NATS, without a login."""

from collections.abc import Sequence

from penstock.cli.security.administration import Credential, NewPassword, ScramUser, Token
from penstock.cli.security.client import SecurityClient
from penstock.contracts.acls import AclBinding, AclFilter, matches
from penstock.contracts.commands import (
    AclsDeleted,
    AlterClientQuotas,
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    ExpireToken,
    Outcome,
    PerItem,
    QuotaChange,
    QuotaPart,
    ScramDeletion,
    ScramUpsertion,
)
from penstock.contracts.configs.quotas import Entity
from penstock.contracts.errors import Invalid
from penstock.contracts.scram_keys import verifier_of_salted

_REVOKE_MS = -1


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

    async def quotas(self) -> dict[Entity, dict[str, str]]:
        return await self._client.read_quotas()

    async def alter_quotas(self, entity: Entity, changes: Sequence[QuotaChange], *, is_trial: bool = False) -> None:
        parts, wanted = [QuotaPart(kind, name) for kind, name in entity], list(changes)
        send = self._client.validate if is_trial else self._client.change
        await send(lambda now_ms, seen: AlterClientQuotas(now_ms, parts, wanted, seen))

    async def tokens(self) -> list[Token]:
        return [
            Token(
                each.token_id,
                each.owner,
                each.requester,
                each.renewers,
                each.expiry_ms,
                each.max_ms,
                each.is_revoked,
            )
            for each in await self._client.read_tokens()
        ]

    async def revoke_token(self, token_id: str) -> None:
        await self._client.change(lambda now_ms, seen: ExpireToken(now_ms, token_id, None, _REVOKE_MS, seen))


def check(outcome: Outcome) -> None:
    """`Invalid` if an item was rejected."""
    rejected = [each for each in outcome.rejections if each] if isinstance(outcome, PerItem) else []
    if rejected:
        raise Invalid(f"the change was rejected: {rejected[0].name}; something may have been changed meanwhile")
