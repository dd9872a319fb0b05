"""Users, access control lists and the check of one operation, as far as the user may see them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.cli.kafka.session import Session
from penstock.cli.security.acl import row_of, word_of
from penstock.cli.security.administration import ScramUser
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
from penstock.contracts.security_rules import MECHANISM_NAMES
from penstock_console.kafka.security import only, read_bindings, read_users
from penstock_console.pages.context import Request, Sources
from penstock_console.pages.errors import NotFound

# An allowed operation includes these; a denied one does not deny them.
_IMPLIED = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_EVERY_USER = user_principal(WILDCARD)
_OPERATIONS = [each for each in AclOperation if each not in (AclOperation.ANY, AclOperation.ALL)]
_RESOURCE_TYPES = [each for each in ResourceType if each != ResourceType.ANY]
_PATTERNS = [PatternType.LITERAL, PatternType.PREFIXED]
_PERMISSIONS = [AclPermission.ALLOW, AclPermission.DENY]


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


class AclEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The entry to add or to remove. The resource `cluster` needs no name."""

    principal: str
    operation: str
    resource_type: str
    name: str = ""
    permission: str = "allow"
    pattern: str = "literal"
    host: str = WILDCARD


class Words(msgspec.Struct, frozen=True):
    """The words that the fields of a question and of an entry may have."""

    operations: list[str]  # `all` is for entries only
    resource_types: list[str]
    permissions: list[str]
    patterns: list[str]


class SecurityPage(msgspec.Struct, frozen=True):
    """Users and access control lists; an error where the user may not see them."""

    user: str
    has_logins: bool
    users: list[User]
    users_error: str
    acls: list[Acl]
    acls_error: str
    words: Words


class UserPage(msgspec.Struct, frozen=True):
    """One user, with the entries of its principal and of all principals."""

    user: User
    principal: str
    is_own: bool
    acls: list[Acl]
    acls_error: str
    words: Words


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
    words: Words


async def security(sources: Sources, request: Request) -> SecurityPage:
    """Users and access control lists."""
    users, users_error = await _tried(sources, request, read_users)
    bindings, acls_error = await _tried(sources, request, read_bindings)
    return SecurityPage(
        request.login.username,
        sources.kafka.needs_login,
        [_user(each) for each in users],
        users_error,
        [_shown(each) for each in bindings],
        acls_error,
        words(),
    )


async def user(sources: Sources, request: Request, name: str) -> UserPage:
    """One user; `NotFound` if there is none."""
    users = {each.name: each for each in await sources.kafka.call(request.login, read_users)}
    if name not in users:
        raise NotFound(f"there is no user {name!r}")
    principal = user_principal(name)
    wanted = [AclFilter(principal=each) for each in dict.fromkeys((principal, _EVERY_USER))]
    bindings, acls_error = await _tried(sources, request, lambda session: read_bindings(session, wanted))
    acls = [_shown(each) for each in bindings]
    return UserPage(_user(users[name]), principal, name == request.login.username, acls, acls_error, words())


async def removal(sources: Sources, request: Request, query: AclEntry) -> Acl:
    """The entry that a removal would remove; nothing is changed. `NotFound` if there is none."""
    binding = binding_of(query)
    found = await sources.kafka.call(request.login, lambda session: read_bindings(session, [only(binding)]))
    if not found:
        raise NotFound("there is no such entry")
    return _shown(found[0])


def binding_of(entry: AclEntry) -> AclBinding:
    """The entry from its words; `Invalid` if there is no such word."""
    kind = _member(_RESOURCE_TYPES, entry.resource_type)
    return AclBinding(
        kind,
        CLUSTER_NAME if kind == ResourceType.CLUSTER else entry.name,
        _member(_PATTERNS, entry.pattern),
        entry.principal,
        entry.host,
        _member([*_OPERATIONS, AclOperation.ALL], entry.operation),
        _member(_PERMISSIONS, entry.permission),
    )


def sentence_of(binding: AclBinding) -> str:
    """An entry in one line."""
    acl = _shown(binding)
    prefix = "names that begin with " if binding.pattern_type == PatternType.PREFIXED else ""
    where = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{acl.permission} {acl.principal} to {acl.operation} {acl.resource_type} {prefix}{acl.name}{where}"


def words() -> Words:
    """All words."""
    kinds = (_OPERATIONS, _RESOURCE_TYPES, _PERMISSIONS, _PATTERNS)
    return Words(*([word_of(each) for each in members] for members in kinds))


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
        return CheckResult(False, "an entry denies it", [_shown(each) for each in denied], words())
    wide = (*exact, *_IMPLIED.get(operation, ()))
    allowed = [each for each in applied if each.permission == AclPermission.ALLOW and each.operation in wide]
    if allowed:
        return CheckResult(True, "an entry allows it", [_shown(each) for each in allowed], words())
    return CheckResult(False, "no entry allows it, so it is denied by default", [], words())


async def _tried(sources: Sources, request: Request, read: Callable[[Session], list[Any]]) -> tuple[list[Any], str]:
    try:
        return await sources.kafka.call(request.login, read), ""
    except PenstockError as error:
        return [], str(error)


def _user(found: ScramUser) -> User:
    return User(found.name, [MECHANISM_NAMES[each.mechanism] for each in found.credentials])


def _shown(binding: AclBinding) -> Acl:
    return msgspec.convert(row_of(binding), Acl)


def _member(members: Sequence[Any], word: str) -> Any:
    for each in members:
        if word_of(each) == word:
            return each
    raise Invalid(f"not one of {', '.join(map(word_of, members))}: {word!r}")
