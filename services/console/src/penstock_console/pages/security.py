"""Users, access control lists and the check of one operation, as far as the user may see them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.cli.kafka.session import Session, error_text
from penstock.contracts.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    canonical_host,
    matches,
    user_principal,
)
from penstock.contracts.errors import Invalid, PenstockError
from penstock_console.pages.context import Request, Sources

# An allowed operation includes these; a denied one does not deny them.
_IMPLIED = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_EVERY_USER = user_principal(WILDCARD)
_OPERATIONS = [each for each in AclOperation if each not in (AclOperation.ANY, AclOperation.ALL)]
_RESOURCE_TYPES = [each for each in ResourceType if each != ResourceType.ANY]


class User(msgspec.Struct, frozen=True):
    """A user with a password at the cluster."""

    name: str
    mechanisms: list[str]


class Acl(msgspec.Struct, frozen=True):
    """One access control list, in words."""

    principal: str
    permission: str
    operation: str
    resource_type: str
    name: str
    pattern: str
    host: str


class SecurityPage(msgspec.Struct, frozen=True):
    """Users and access control lists; an error where the user may not see them."""

    user: str
    has_logins: bool
    users: list[User]
    users_error: str
    acls: list[Acl]
    acls_error: str
    operations: list[str]
    resource_types: list[str]


class CheckQuery(msgspec.Struct, frozen=True, kw_only=True):
    """May this principal do this operation on this resource, from this host?"""

    principal: str
    operation: str
    resource_type: str
    name: str = ""
    host: str = "127.0.0.1"


class CheckResult(msgspec.Struct, frozen=True):
    """The answer, and the entries that decide it. Super users of the gateways' settings may do everything."""

    is_allowed: bool
    reason: str
    acls: list[Acl]


async def security(sources: Sources, request: Request) -> SecurityPage:
    """Users and access control lists."""
    users, users_error = await _tried(sources, request, _read_users)
    bindings, acls_error = await _tried(sources, request, read_bindings)
    return SecurityPage(
        request.login.username,
        sources.kafka.needs_login,
        users,
        users_error,
        [_shown(each) for each in bindings],
        acls_error,
        [_word(each) for each in _OPERATIONS],
        [_word(each) for each in _RESOURCE_TYPES],
    )


async def check(sources: Sources, request: Request, query: CheckQuery) -> CheckResult:
    """The answer to one question, by the rules of Kafka's authorizer."""
    bindings = await sources.kafka.call(request.login, read_bindings)
    return decided(bindings, query)


def decided(bindings: Sequence[AclBinding], query: CheckQuery) -> CheckResult:
    """A denial decides before all others; an operation is allowed if it, or one that includes it, is."""
    operation = _member(_OPERATIONS, query.operation)
    kind = _member(_RESOURCE_TYPES, query.resource_type)
    name = CLUSTER_NAME if kind == ResourceType.CLUSTER else query.name
    if not name:
        raise Invalid("name the resource")
    meant = AclFilter(kind, name, PatternType.MATCH)
    principals, host = (query.principal, _EVERY_USER), canonical_host(query.host)
    applied = [
        each
        for each in bindings
        if matches(meant, each)
        and each.principal in principals
        and (each.host == WILDCARD or canonical_host(each.host) == host)
    ]
    exact = (operation, AclOperation.ALL)
    denied = [each for each in applied if each.permission == AclPermission.DENY and each.operation in exact]
    if denied:
        return CheckResult(False, "an entry denies it", [_shown(each) for each in denied])
    wide = (*exact, *_IMPLIED.get(operation, ()))
    allowed = [each for each in applied if each.permission == AclPermission.ALLOW and each.operation in wide]
    if allowed:
        return CheckResult(True, "an entry allows it", [_shown(each) for each in allowed])
    return CheckResult(False, "no entry allows it, so it is denied by default", [])


def read_bindings(session: Session) -> list[AclBinding]:
    """All access control lists that the user may see."""
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePatternFilter,
        ResourceType as KafkaResourceType,
    )

    pattern = ResourcePatternFilter(KafkaResourceType.ANY, None, ACLResourcePatternType.ANY)
    wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    found, error = session.admin.describe_acls(wanted)
    if error is not None and error.__name__ != "NoError":
        raise Invalid(error_text(error()))
    return [
        AclBinding(
            ResourceType(int(each.resource_pattern.resource_type)),
            each.resource_pattern.resource_name,
            PatternType(int(each.resource_pattern.pattern_type)),
            each.principal,
            each.host,
            AclOperation(int(each.operation)),
            AclPermission(int(each.permission_type)),
        )
        for each in found
    ]


def _read_users(session: Session) -> list[User]:
    found: Mapping[str, Any] = session.admin.describe_user_scram_credentials()
    return [
        User(name, [_mechanism(info["mechanism"]) for info in each["credential_infos"]])
        for name, each in sorted(found.items())
    ]


def _mechanism(value: Any) -> str:
    return str(value.name).replace("_", "-")


async def _tried(sources: Sources, request: Request, read: Any) -> tuple[list[Any], str]:
    try:
        return await sources.kafka.call(request.login, read), ""
    except (PenstockError, OSError) as error:
        return [], str(error)


def _shown(binding: AclBinding) -> Acl:
    return Acl(
        binding.principal,
        _word(binding.permission),
        _word(binding.operation),
        _word(binding.resource_type),
        binding.name,
        _word(binding.pattern_type),
        binding.host,
    )


def _word(value: Any) -> str:
    return str(value.name).lower().replace("_", "-")


def _member(members: Sequence[Any], word: str) -> Any:
    for each in members:
        if _word(each) == word:
            return each
    raise Invalid(f"not one of {', '.join(_word(each) for each in members)}: {word!r}")
