"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses, with a result for each (KIP-546)."""

from typing import Protocol

from penstock.contracts.commands import AlterClientQuotas, QuotaChange, QuotaPart
from penstock.contracts.configs.quotas import (
    Entity,
    entity_of,
    entity_validation_error,
    value_text,
    value_validation_error,
)
from penstock.contracts.levels import QUOTAS_LEVEL
from penstock.kafkawire.api.alter_client_quotas import (
    API as API,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.feature_levels import until_level
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.metadata.admin_commands import AdminResult, duplicates, result_of, run_commands
from penstock_gateway.metadata.config_updates import ATTEMPTS_MAX, STALE
from penstock_gateway.quotas.quota_cache import HasQuotas

TIMEOUT_MS = 30_000  # the request has no time-out field
NOT_YET: AdminResult = (
    ErrorCode.UNSUPPORTED_VERSION,
    "client quotas are not supported until all sequencers of the cluster are upgraded",
)


class Needs(HasClock, HasQuotas, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    slices = Slices()
    entities = [_entity(entry) async for entry in slices.of(request.entries)]
    repeated = duplicates(entities)
    asked = dict(zip(entities, request.entries, strict=True))
    results = {
        entity: _validation_error(entity, entry, entity in repeated) async for entity, entry in slices.of(asked.items())
    }
    await until_level(gateway, QUOTAS_LEVEL)
    if gateway.sequencer.seen_level is not None and gateway.sequencer.seen_level < QUOTAS_LEVEL:
        results = dict.fromkeys(asked, NOT_YET)
    good = [entity for entity, result in results.items() if not result[0]]
    for _ in range(ATTEMPTS_MAX):  # again if this gateway did not know of a change through another one
        commands = [_command(gateway, entity, asked[entity]) for entity in good]
        outcomes = await run_commands(gateway, commands, TIMEOUT_MS, validate_only=request.validate_only)
        results |= {entity: result_of(outcome) for entity, outcome in zip(good, outcomes, strict=True)}
        good = [entity for entity in good if results[entity][0] == STALE]
    if not request.validate_only:
        await gateway.quotas.refresh()
    return AlterClientQuotasResponse(
        entries=[
            EntryResult(*result, [EntityData(kind, name) for kind, name in entity])
            async for entity, result in slices.of(results.items())
        ]
    )


def _entity(entry: EntryData) -> Entity:
    return entity_of([(part.entity_type, part.entity_name) for part in entry.entity])


def _validation_error(entity: Entity, entry: EntryData, is_repeated: bool) -> AdminResult:
    """The error that the gateway finds without a sequencer, so that the request stays out of the journal."""
    reason = "the entity occurs more than once in the request" if is_repeated else entity_validation_error(entity)
    if not reason and duplicates(op.key for op in entry.ops):
        reason = "a quota occurs more than once for the entity"
    for op in entry.ops:
        if not op.remove:
            reason = reason or value_validation_error(entity, op.key, value_text(op.value))
    return (ErrorCode.INVALID_REQUEST, reason) if reason else (ErrorCode.NONE, None)


def _command(gateway: Needs, entity: Entity, entry: EntryData) -> AlterClientQuotas:
    return AlterClientQuotas(
        now_ms=gateway.clock.now_ms(),
        entity=[QuotaPart(kind, name) for kind, name in entity],
        changes=[QuotaChange(op.key, None if op.remove else value_text(op.value)) for op in entry.ops],
        seen_sequence=gateway.sequencer.seen_sequence,
    )
