"""AlterUserScramCredentials: sets and deletes users' passwords, with a result for each user (KIP-554).

The client sends a salted password. The gateway derives the keys of the verifier from it and keeps nothing else.
"""

from typing import Protocol

from penstock.contracts.commands import (
    AlterScramCredentials,
    PerItem,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from penstock.contracts.rejections import Rejection
from penstock.contracts.scram_keys import verifier_of_salted
from penstock.contracts.security_rules import (
    iterations_validation_error,
    user_validation_error,
    verifier_validation_error,
)
from penstock.kafkawire.api.alter_user_scram_credentials import (
    API as API,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.metadata.admin_commands import AdminResult, result_of
from penstock_gateway.security.security_cache import HasSecurity
from penstock_gateway.security.security_changes import change_security

MESSAGES = {
    Rejection.RESOURCE_NOT_FOUND: "Attempt to delete a user credential that does not exist",
    Rejection.DUPLICATE_RESOURCE: "A user credential cannot be altered twice in the same request",
}
UNKNOWN_MECHANISM: AdminResult = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


class Needs(HasClock, HasSecurity, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    slices = Slices()
    asked = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    errors: dict[str, AdminResult] = {}
    deletions = []
    async for deletion in slices.of(request.deletions):
        error = _name_error(deletion.name, deletion.mechanism)
        if error is None:
            deletions.append(ScramDeletion(deletion.name, ScramMechanism(deletion.mechanism)))
        else:
            errors.setdefault(deletion.name, error)
    upsertions = []
    async for each in slices.of(request.upsertions):
        made = _upsertion(each)
        if isinstance(made, ScramUpsertion):
            upsertions.append(made)
        else:
            errors.setdefault(each.name, made)
    # A user with one invalid item keeps all its passwords, as in Kafka.
    deletions = [each for each in deletions if each.user not in errors]
    upsertions = [each for each in upsertions if each.user not in errors]
    results: dict[str, AdminResult] = {}
    if deletions or upsertions:
        results = await _altered(gateway, upsertions, deletions)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(name, *(errors.get(name) or results[name])) for name in dict.fromkeys(asked)
        ]
    )


def _name_error(name: str, mechanism: int) -> AdminResult | None:
    reason = user_validation_error(name)
    if reason:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, reason
    return None if mechanism in list(ScramMechanism) else UNKNOWN_MECHANISM


def _upsertion(asked: ScramCredentialUpsertion) -> ScramUpsertion | AdminResult:
    error = _name_error(asked.name, asked.mechanism)
    if error is not None:
        return error
    if not asked.salted_password:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"
    reason = iterations_validation_error(asked.iterations)  # the first, as in Kafka
    mechanism = ScramMechanism(asked.mechanism)
    verifier = verifier_of_salted(mechanism, asked.salted_password, asked.salt, asked.iterations)
    reason = reason or verifier_validation_error(verifier)
    return (ErrorCode.UNACCEPTABLE_CREDENTIAL, reason) if reason else ScramUpsertion(asked.name, verifier)


async def _altered(
    gateway: Needs, upsertions: list[ScramUpsertion], deletions: list[ScramDeletion]
) -> dict[str, AdminResult]:
    """The result of each user: all its items have the same."""
    outcome = await change_security(
        gateway, lambda now_ms, seen: AlterScramCredentials(now_ms, upsertions, deletions, seen)
    )
    names = [each.user for each in upsertions] + [each.user for each in deletions]
    if not isinstance(outcome, PerItem):
        return dict.fromkeys(names, result_of(outcome))
    found = zip(names, outcome.rejections, strict=True)
    return {name: (error_of(rejection), MESSAGES.get(rejection)) for name, rejection in found}
