"""The rules of users, access control lists and tokens: why a verifier, a binding, ... is rejected. Pure.

The state machine, the gateways and the command line all apply them. The texts are Kafka's where Kafka has one.
"""

from collections.abc import Sequence

from penstock.contracts.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.contracts.commands.delegation_tokens import CreateToken
from penstock.contracts.commands.security import ScramMechanism, ScramVerifier

NAME_LENGTH_MAX = 255  # of users, resources, principals and hosts, in letters
ITERATIONS_MIN = 4_096  # Kafka's, and that of RFC 7677
ITERATIONS_MAX = 16_384  # Kafka's: a client computes the iterations for each login
SALT_BYTES_MAX = 255
TOKEN_ID_LENGTH_MAX = 64  # also of the id of a secret key, in letters
RENEWERS_MAX = 20  # of one delegation token
RENEWERS_LENGTH_MAX = 1_000  # of all names of the renewers of one token, in letters
KEY_BYTES = {ScramMechanism.SHA_256: 32, ScramMechanism.SHA_512: 64}
# Kafka's names of the mechanisms in logins and tools.
MECHANISM_NAMES = {ScramMechanism.SHA_256: "SCRAM-SHA-256", ScramMechanism.SHA_512: "SCRAM-SHA-512"}


def user_validation_error(name: str) -> str:
    """The reason why no user can have this name; "" if one can."""
    if not name:
        return "Username must not be empty"
    if len(name) > NAME_LENGTH_MAX:
        return f"Username must have at most {NAME_LENGTH_MAX} letters"
    return ""


def iterations_validation_error(iterations: int) -> str:
    """The reason why a verifier cannot have so many iterations; "" if it can."""
    if iterations < ITERATIONS_MIN:
        return "Too few iterations"
    if iterations > ITERATIONS_MAX:
        return "Too many iterations"
    return ""


def verifier_validation_error(verifier: ScramVerifier) -> str:
    """The reason why this verifier is invalid; "" if it is valid. No text contains a part of the verifier."""
    key_bytes = KEY_BYTES[verifier.mechanism]
    if not 0 < len(verifier.salt) <= SALT_BYTES_MAX:
        return f"The salt must have 1 to {SALT_BYTES_MAX} bytes"
    if len(verifier.stored_key) != key_bytes or len(verifier.server_key) != key_bytes:
        return f"The keys of {MECHANISM_NAMES[verifier.mechanism]} must have {key_bytes} bytes"
    return iterations_validation_error(verifier.iterations)


def token_validation_error(command: CreateToken) -> str:
    """The reason why there can be no such delegation token; "" if there can."""
    ids = (command.token_id, command.key_id)
    if not all(0 < len(each) <= TOKEN_ID_LENGTH_MAX for each in ids):
        return f"The ids of a token and of its key must have 1 to {TOKEN_ID_LENGTH_MAX} letters"
    reasons = map(user_validation_error, (command.owner, command.requester, *command.renewers))
    return next(filter(None, reasons), "") or renewers_validation_error(command.renewers)


def renewers_validation_error(renewers: Sequence[str]) -> str:
    """The reason why a token cannot have so many renewers; "" if it can."""
    if len(renewers) > RENEWERS_MAX:
        return f"A delegation token must have at most {RENEWERS_MAX} renewers"
    if sum(map(len, renewers)) > RENEWERS_LENGTH_MAX:
        return f"The names of all renewers must have at most {RENEWERS_LENGTH_MAX} letters"
    return ""


def binding_validation_error(binding: AclBinding) -> str:
    """The reason why this binding is invalid; "" if it is valid."""
    if binding.resource_type == ResourceType.ANY:
        return "Invalid resourceType ANY"
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {binding.pattern_type.name}"
    if binding.operation == AclOperation.ANY:
        return "Invalid operation ANY"
    if binding.permission == AclPermission.ANY:
        return "Invalid permissionType ANY"
    if not binding.name:
        return "Resource name should not be empty"
    if binding.resource_type == ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return _principal_validation_error(binding.principal) or _lengths_validation_error(binding)


def _principal_validation_error(principal: str) -> str:
    kind, colon, name = principal.partition(":")
    if not colon:
        quoted = principal[:NAME_LENGTH_MAX]
        return (
            f"Could not parse principal from `{quoted}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return "" if kind and name else "A principal has the form Type:name, with a type and a name"


def _lengths_validation_error(binding: AclBinding) -> str:
    if not binding.host:
        return "Host should not be empty"
    names = {"resource name": binding.name, "principal": binding.principal, "host": binding.host}
    long = [what for what, name in names.items() if len(name) > NAME_LENGTH_MAX]
    return f"The {long[0]} must have at most {NAME_LENGTH_MAX} letters" if long else ""
