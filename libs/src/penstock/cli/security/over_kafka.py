"""Users and access control lists over Kafka, with the rights of a login.

The requests of kafka-python are sent as they are: its own methods do not know all operations, and take an error
without a text for success.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.protocol.admin import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
)

from penstock.cli.kafka.messages import ask_any
from penstock.cli.kafka.session import Session, check_ok
from penstock.cli.security.administration import Credential, NewPassword, ScramUser
from penstock.contracts.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import ScramDeletion, ScramMechanism

_USERS_VERSION = 3  # the first version of these messages with users as resources


class KafkaAdmin:
    """The users and lists of a gateway. Salted passwords are sent, so the listener should use TLS."""

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
