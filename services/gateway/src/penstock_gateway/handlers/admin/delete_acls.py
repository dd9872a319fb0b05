"""DeleteAcls: removes the access control lists that filters match, and lists them for each filter (KIP-140)."""

from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.acls import AclBinding, AclFilter
from penstock.contracts.commands import AclsDeleted, DeleteAcls
from penstock.kafkawire.api.delete_acls import (
    API as API,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.metadata.admin_commands import result_of
from penstock_gateway.security.acl_codes import filter_of
from penstock_gateway.security.security_cache import HasSecurity
from penstock_gateway.security.security_changes import change_security


class Needs(HasClock, HasSecurity, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: DeleteAclsRequest) -> DeleteAclsResponse:
    slices = Slices()
    filters = [filter_of(each) async for each in slices.of(request.filters)]
    good = [each for each in filters if isinstance(each, AclFilter)]
    results = iter(await _deleted(gateway, good, slices) if good else ())
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, each) if isinstance(each, str) else next(results)
            for each in filters
        ]
    )


async def _deleted(gateway: Needs, filters: list[AclFilter], slices: Slices) -> list[DeleteAclsFilterResult]:
    outcome = await change_security(gateway, lambda now_ms, seen: DeleteAcls(now_ms, filters, seen))
    if not isinstance(outcome, AclsDeleted):
        return [DeleteAclsFilterResult(*result_of(outcome))] * len(filters)
    return [await _result(found, slices) for found in outcome.deleted]


async def _result(found: Sequence[AclBinding], slices: Slices) -> DeleteAclsFilterResult:
    matching = [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=each.resource_type,
            resource_name=each.name,
            pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        async for each in slices.of(found)
    ]
    return DeleteAclsFilterResult(error_message=None, matching_acls=matching)
