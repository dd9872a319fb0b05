"""Users, access control lists, quotas and tokens over Kafka, with the rights of a login.

The requests of kafka-python are sent as they are: its own methods do not know all operations, and take an error
without a text for success.
"""

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)

from penstock.cli.kafka.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    ask_any,
)
from penstock.cli.kafka.session import Session, check_ok
from penstock.cli.security.administration import Credential, NewPassword, ScramUser, Token
from penstock.contracts.acls import (
    USER_TYPE,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.contracts.commands import QuotaChange, ScramDeletion, ScramMechanism
from penstock.contracts.configs.quotas import Entity, entity_of, value_text
from penstock.contracts.errors import Invalid

_REVOKE_MS = -1
_USERS_VERSION = 3  # the first version of these messages with users as resources
_OWNERS_VERSION = 3  # the first version of these messages with owners and requesters


class KafkaAdmin:
    """The security of a cluster, through its gateways. Salted passwords are sent, so the listener should use TLS."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def users(self) -> list[ScramUser]:
        answer = ask_any(self._session, DescribeUserScramCredentialsRequest(users=None))
        check_ok(answer.error_code, answer.error_message, "the users are not listed")
        found = []
        for user in answer.results:
            check_ok(user.error_code, user.error_message, f"user {user.user!r}")
            credentials = [
                Credential(ScramMechanism(each.mechanism), each.iterations) for each in user.credential_infos
            ]
            found.append(ScramUser(user.user, credentials))
        return sorted(found, key=lambda user: user.name)

    async def set_passwords(self, passwords: Sequence[NewPassword]) -> None:
        request = AlterUserScramCredentialsRequest
        upsertions = [
            request.ScramCredentialUpsertion(
                name=each.name,
                mechanism=int(each.mechanism),
                iterations=each.iterations,
                salt=each.salt,
                salted_password=each.salted_password,
            )
            for each in passwords
        ]
        self._alter(request(deletions=[], upsertions=upsertions))

    async def delete_credentials(self, deletions: Sequence[ScramDeletion]) -> None:
        request = AlterUserScramCredentialsRequest
        wanted = [request.ScramCredentialDeletion(name=each.user, mechanism=int(each.mechanism)) for each in deletions]
        self._alter(request(deletions=wanted, upsertions=[]))

    def _alter(self, request: Any) -> None:
        for each in ask_any(self._session, request).results:
            check_ok(each.error_code, each.error_message, f"user {each.user!r} is not changed")

    async def bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        found: list[AclBinding] = []
        for wanted in filters:
            request = DescribeAclsRequest(min_version=_version([wanted]), **_filter_fields(wanted))
            answer = ask_any(self._session, request)
            check_ok(answer.error_code, answer.error_message, "the entries are not listed")
            found += [
                _binding(each, resource.resource_type, resource.resource_name, resource.pattern_type)
                for resource in answer.resources
                for each in resource.acls
            ]
        return list(dict.fromkeys(found))

    async def create_bindings(self, bindings: Sequence[AclBinding]) -> None:
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=int(each.resource_type),
                resource_name=each.name,
                resource_pattern_type=int(each.pattern_type),
                principal=each.principal,
                host=each.host,
                operation=int(each.operation),
                permission_type=int(each.permission),
            )
            for each in bindings
        ]
        answer = ask_any(self._session, CreateAclsRequest(min_version=_version(bindings), creations=creations))
        for each in answer.results:
            check_ok(each.error_code, each.error_message, "the entry is not added")

    async def delete_bindings(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        wanted = [DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(each)) for each in filters]
        answer = ask_any(self._session, DeleteAclsRequest(min_version=_version(filters), filters=wanted))
        found: list[AclBinding] = []
        for result in answer.filter_results:
            check_ok(result.error_code, result.error_message, "no entry is removed")
            for each in result.matching_acls:
                check_ok(each.error_code, each.error_message, "an entry is not removed")
                found.append(_binding(each, each.resource_type, each.resource_name, each.pattern_type))
        return list(dict.fromkeys(found))

    async def quotas(self) -> dict[Entity, dict[str, str]]:
        answer = ask_any(self._session, DescribeClientQuotasRequest(components=[], strict=False))
        check_ok(answer.error_code, answer.error_message, "the quotas are not listed")
        return {
            entity_of([(part.entity_type, part.entity_name) for part in entry.entity]): {
                each.key: value_text(each.value) for each in entry.values
            }
            for entry in answer.entries
        }

    async def alter_quotas(self, entity: Entity, changes: Sequence[QuotaChange], *, is_trial: bool = False) -> None:
        data = AlterClientQuotasRequest.EntryData
        entry = data(
            entity=[data.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                data.OpData(key=each.key, value=float(each.value or 0), remove=each.value is None) for each in changes
            ],
        )
        answer = ask_any(self._session, AlterClientQuotasRequest(entries=[entry], validate_only=is_trial))
        for each in answer.entries:
            check_ok(each.error_code, each.error_message, "the quotas are not changed")

    async def tokens(self) -> list[Token]:
        return [_described(each) for each in self._tokens()]

    async def create_token(self, owner: str | None, renewers: Sequence[str], lifetime_ms: int) -> tuple[Token, str]:
        """A new token of a user, of the login itself without one, and the password."""
        request = CreateDelegationTokenRequest
        made = ask_any(
            self._session,
            request(
                min_version=_OWNERS_VERSION,
                owner_principal_type=None if owner is None else USER_TYPE,
                owner_principal_name=owner,
                renewers=[
                    request.CreatableRenewers(principal_type=USER_TYPE, principal_name=each) for each in renewers
                ],
                max_lifetime_ms=lifetime_ms,
            ),
        )
        check_ok(made.error_code, None, "the token is not created")
        times_ms = made.expiry_timestamp_ms, made.max_timestamp_ms
        token = Token(made.token_id, made.principal_name, made.token_requester_principal_name, renewers, *times_ms)
        return token, base64.b64encode(made.hmac).decode()

    async def renew_token(self, token_id: str, period_ms: int) -> Token:
        """The token with its new expiry."""
        token = self._token(token_id)
        answer = ask_any(self._session, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms))
        check_ok(answer.error_code, None, "the token is not renewed")
        return msgspec.structs.replace(_described(token), expiry_ms=answer.expiry_timestamp_ms)

    async def revoke_token(self, token_id: str) -> None:
        wanted = ExpireDelegationTokenRequest(hmac=self._token(token_id).hmac, expiry_time_period_ms=_REVOKE_MS)
        check_ok(ask_any(self._session, wanted).error_code, None, "the token is not revoked")

    def _tokens(self) -> Sequence[Any]:
        answer = ask_any(self._session, DescribeDelegationTokenRequest(min_version=_OWNERS_VERSION, owners=None))
        check_ok(answer.error_code, None, "the tokens are not listed")
        tokens: Sequence[Any] = answer.tokens
        return tokens

    def _token(self, token_id: str) -> Any:
        """The token with its password, by which Kafka names it."""
        found = [each for each in self._tokens() if each.token_id == token_id]
        if not found:
            raise Invalid(f"there is no delegation token {token_id!r}, or this login may not see it")
        return found[0]


def _version(wanted: Iterable[AclBinding | AclFilter]) -> int:
    """The lowest version of a message that can have all these."""
    return _USERS_VERSION if any(each.resource_type == ResourceType.USER for each in wanted) else 1


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _binding(entry: Any, resource_type: int, name: str, pattern_type: int) -> AclBinding:
    return AclBinding(
        ResourceType(resource_type),
        name,
        PatternType(pattern_type),
        entry.principal,
        entry.host,
        AclOperation(entry.operation),
        AclPermission(entry.permission_type),
    )


def _described(token: Any) -> Token:
    return Token(
        token.token_id,
        token.principal_name,
        token.token_requester_principal_name,
        [each.principal_name for each in token.renewers],
        token.expiry_timestamp,
        token.max_timestamp,
    )
