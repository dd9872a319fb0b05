"""DescribeClientQuotas: lists the quotas of the entities that a filter matches (KIP-546)."""

from penstock.contracts.configs.quotas import CLIENT_ID, ENTITY_TYPES, IP, USER
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.quotas import ClientQuotasQuery, ClientQuotasView, QuotaEntry
from penstock.kafkawire.api.describe_client_quotas import (
    API as API,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.kafka.parts import HasSequencer
from penstock_gateway.metadata.admin_commands import duplicates

EXACT, DEFAULT, ANY = 0, 1, 2
DEADLINE_S = 5.0


async def handle(
    gateway: HasSequencer, client: Client, version: int, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    error, message = _validation_error(request.components)
    if error:
        return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)
    try:
        view = await gateway.sequencer.query(
            "client_quotas", ClientQuotasQuery(0, fresh=True), ClientQuotasView, deadline_s=DEADLINE_S
        )
    except Unavailable as failure:
        return DescribeClientQuotasResponse(
            error_code=ADMINISTRATION_UNAVAILABLE, error_message=str(failure), entries=None
        )
    found = [_entry_data(entry) for entry in view.entries if _matches(entry, request)]
    return DescribeClientQuotasResponse(entries=found)


def _validation_error(components: list[ComponentData]) -> tuple[ErrorCode, str]:
    types = [component.entity_type for component in components]
    unknown = [kind for kind in types if kind not in ENTITY_TYPES]
    if unknown:
        return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {unknown[0][:255]}"
    for kind in sorted(duplicates(types)):
        return ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
    if IP in types and (USER in types or CLIENT_ID in types):
        return ErrorCode.INVALID_REQUEST, (
            "Invalid entity filter component combination. "
            "IP filter component should not be used with user or clientId filter component."
        )
    for component in components:
        if component.match_type not in (EXACT, DEFAULT, ANY):
            return ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}"
        if component.match_type == EXACT and component.match is None:
            return ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
        if component.match_type != EXACT and component.match is not None:
            name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            return ErrorCode.INVALID_REQUEST, f"Request specified MATCH_TYPE_{name}, but also specified a match string."
    return ErrorCode.NONE, ""


def _matches(entry: QuotaEntry, request: DescribeClientQuotasRequest) -> bool:
    names = {part.kind: part.name for part in entry.entity}
    if request.strict and len(names) != len(request.components):
        return False
    return all(
        component.entity_type in names
        and (component.match_type == ANY or names[component.entity_type] == component.match)
        for component in request.components
    )


def _entry_data(entry: QuotaEntry) -> EntryData:
    return EntryData(
        [EntityData(part.kind, part.name) for part in entry.entity],
        [ValueData(key, float(value)) for key, value in entry.values.items()],
    )
