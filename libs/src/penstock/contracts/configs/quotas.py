"""Client quotas: their entities, keys and values, and the lookup of the quota in force for a client. Pure.

A quota is for an entity: a user, a client id, a user with a client id, or an address. The name None means the default,
for clients without a quota. Every other combination, and every other quota, is rejected by name.
"""

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
PRODUCE_RATE = "producer_byte_rate"
FETCH_RATE = "consumer_byte_rate"
REQUEST_TIME = "request_percentage"
MUTATION_RATE = "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"
ANONYMOUS = "ANONYMOUS"  # Kafka's name for a user without authentication
NAME_LENGTH_MAX = 255  # letters; real names are shorter, and with this limit all quotas fit into one message.
VALUE_MAX = 2**53 - 1  # Clients send floats, which hold every whole number up to this one.

_WHOLE = re.compile(r"[1-9][0-9]{0,15}|0", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,16}(\.[0-9]{1,20})?", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-fA-F:.]{2,45}", re.ASCII)

Part = tuple[str, str | None]  # an entity's type, and a name or None
Entity = tuple[Part, ...]  # in the order of types
Quotas = Mapping[Entity, Mapping[str, str]]
CLUSTER = "cluster"
CLUSTER_ENTITY: Entity = ((CLUSTER, None),)  # all clients of the cluster; administrators set no such quota


class Quota(msgspec.Struct, frozen=True):
    """One kind of quota: Kafka's key, and the types of entities that can have it."""

    key: str
    types: tuple[str, ...]
    is_whole: bool
    documentation: str


QUOTAS: dict[str, Quota] = {
    quota.key: quota
    for quota in (
        Quota(PRODUCE_RATE, (USER, CLIENT_ID), True, "Bytes of Produce requests per second, over all gateways."),
        Quota(FETCH_RATE, (USER, CLIENT_ID), True, "Bytes of records fetched per second, over all gateways."),
        Quota(REQUEST_TIME, (USER, CLIENT_ID), False, "Per cent of the time of each gateway's one thread."),
        Quota(MUTATION_RATE, (USER, CLIENT_ID), False, "Partitions made or deleted per second, over all gateways."),
        Quota(CONNECTION_RATE, (IP,), True, "New connections per second from an address, over all gateways."),
    )
}


class InForce(msgspec.Struct, frozen=True):
    """The quota in force for a client, which shares it with all clients that have the same `who`."""

    who: Entity
    value: float


def entity_of(parts: Sequence[Part]) -> Entity:
    """The entity with these parts, in any order."""
    return tuple(sorted(parts, key=lambda part: part[0]))


def entity_validation_error(entity: Entity) -> str:
    """The reason why this entity is invalid; "" if it is valid."""
    types = [kind for kind, _ in entity]
    if not entity:
        return "Invalid empty client quota entity"
    unknown = [kind for kind in types if kind not in ENTITY_TYPES]
    if unknown:
        return f"Unhandled client quota entity type: {unknown[0][:NAME_LENGTH_MAX]}"
    if len(set(types)) < len(types):
        return "an entity has each type once at most"
    if IP in types and len(types) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    for kind, name in entity:
        if name == "":
            return f"Empty {kind} not supported"
        if name is not None and not 0 < len(name) <= NAME_LENGTH_MAX:
            return f"the name of a {kind} has 1 to {NAME_LENGTH_MAX} letters"
        if kind == IP and name is not None and not _ADDRESS.fullmatch(name):
            return f"{name} is not a valid IP or resolvable host."
    return ""


def value_validation_error(entity: Entity, key: str, value: str) -> str:
    """The reason why the entity cannot have this quota; "" if it can."""
    quota = QUOTAS.get(key)
    if quota is None:
        return f"Invalid configuration key {key[:NAME_LENGTH_MAX]}"
    if any(kind not in quota.types for kind, _ in entity):
        return f"Invalid configuration key {key}"
    if value.startswith("-") or (_DECIMAL.fullmatch(value) and float(value) == 0 and key != CONNECTION_RATE):
        return f"Quota {key} must be greater than 0"
    if quota.is_whole and _DECIMAL.fullmatch(value) and not _WHOLE.fullmatch(value):
        return f"{key} cannot be a fractional value."
    if not _DECIMAL.fullmatch(value) or float(value) > VALUE_MAX:
        return f"Proposed value for {key} is too large for a {'LONG' if quota.is_whole else 'DOUBLE'}."
    return ""


def value_text(value: float) -> str:
    """The stored text of a value that came as a float; `value_validation_error` rejects the text of a bad value."""
    if not math.isfinite(value):
        return str(value)
    return str(int(value)) if value == int(value) else format(value, ".10f").rstrip("0")


def connection_quota(quotas: Quotas, address: str) -> InForce | None:
    """The number of connections that an address may open per second, None without a limit.

    The address's own quota comes before the default.
    """
    who = ((IP, address),)
    for entity in (who, ((IP, None),)):
        value = quotas.get(entity, {}).get(CONNECTION_RATE)
        if value is not None:
            return InForce(who, float(value))
    return None


def client_quota(quotas: Quotas, key: str, user: str, client_id: str) -> InForce | None:
    """The quota in force for the client, None without a limit.

    Kafka's order: a quota of the user comes before a quota of the client id alone, and a name before the default.
    Clients share the quota if they have the entity's parts in common: the user, the client id, or both.
    """
    for user_name in (user, None):
        for client_name in (client_id, None):
            entity: Entity = ((CLIENT_ID, client_name), (USER, user_name))
            value = quotas.get(entity, {}).get(key)
            if value is not None:
                return InForce(((CLIENT_ID, client_id), (USER, user)), float(value))
        value = quotas.get(((USER, user_name),), {}).get(key)
        if value is not None:
            return InForce(((USER, user),), float(value))
    for client_name in (client_id, None):
        value = quotas.get(((CLIENT_ID, client_name),), {}).get(key)
        if value is not None:
            return InForce(((CLIENT_ID, client_id),), float(value))
    return None
