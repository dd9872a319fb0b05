"""Access control lists: resources, operations, bindings, and filters over bindings. Pure; the numbers are Kafka's."""

import enum
import ipaddress

import msgspec

USER_TYPE = "User"
WILDCARD = "*"  # as a name: every resource of the type; as a host: every host; as `User:*`: every principal
PRINCIPAL_LENGTH_MAX = 256  # characters that distinguish principals in the tables of sequencers (ADR 0040)
CLUSTER_NAME = "kafka-cluster"  # the only name of a resource of type CLUSTER


class ResourceType(enum.IntEnum):
    """The types of resources with bindings. ANY stands in filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How a binding's name matches. ANY and MATCH stand in filters only; MATCH is all that applies to a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """The operations that bindings allow or deny. ANY stands in filters only; ALL is every operation."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(enum.IntEnum):
    """Whether a binding denies or allows. ANY stands in filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


# Reading a member of an enumeration takes longer than all comparisons of `matches`.
_ANY_TYPE, _ANY_PATTERN, _MATCH = ResourceType.ANY, PatternType.ANY, PatternType.MATCH
_ANY_OPERATION, _ANY_PERMISSION = AclOperation.ANY, AclPermission.ANY


class AclBinding(msgspec.Struct, frozen=True, array_like=True):
    """One rule: this principal, from this host, may or may not do this operation on these resources."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str  # "User:alice"
    host: str  # an IP address, or WILDCARD
    operation: AclOperation
    permission: AclPermission


class AclFilter(msgspec.Struct, frozen=True, array_like=True):
    """Which bindings are meant; None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


def matches(wanted: AclFilter, binding: AclBinding) -> bool:
    """Whether the filter means this binding, as in Kafka. It is called for each binding, the cheap checks first."""
    return (
        (wanted.principal is None or wanted.principal == binding.principal)
        and wanted.resource_type in (_ANY_TYPE, binding.resource_type)
        and (wanted.name is None or wanted.pattern_type is _MATCH or wanted.name == binding.name)
        and wanted.pattern_type in (_ANY_PATTERN, _MATCH, binding.pattern_type)
        and wanted.permission in (_ANY_PERMISSION, binding.permission)
        and wanted.operation in (_ANY_OPERATION, binding.operation)
        and (wanted.host is None or wanted.host == binding.host)
        and (wanted.pattern_type is not _MATCH or _applies_to(binding, wanted.name))
    )


def _applies_to(binding: AclBinding, name: str | None) -> bool:
    if name is None:
        return True
    if binding.pattern_type is PatternType.PREFIXED:
        return name.startswith(binding.name)
    return binding.name in (name, WILDCARD)


def only_binding(wanted: AclFilter) -> AclBinding | None:
    """The one binding that the filter can match; None if it can match several."""
    is_open = (
        None in (wanted.name, wanted.principal, wanted.host)
        or wanted.resource_type == ResourceType.ANY
        or wanted.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or wanted.operation == AclOperation.ANY
        or wanted.permission == AclPermission.ANY
    )
    return None if is_open else AclBinding(*msgspec.structs.astuple(wanted))


def user_principal(name: str) -> str:
    """The principal of a user: "User:" and the name."""
    return f"{USER_TYPE}:{name}"


def canonical_host(host: str) -> str:
    """One spelling of an IP address, so that `::1` equals `0:0:0:0:0:0:0:1`; other text stays as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
