"""CreateAcls: adds access control lists, with a result for each; one that exists is no error (KIP-140)."""

from typing import Protocol

from penstock.contracts.acls import AclBinding
from penstock.contracts.commands import CreateAcls
from penstock.kafkawire.api.create_acls import API as API, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.metadata.admin_commands import AdminResult, result_of
from penstock_gateway.security.acl_codes import binding_of
from penstock_gateway.security.security_cache import HasSecurity
from penstock_gateway.security.security_changes import change_security


class Needs(HasClock, HasSecurity, HasSequencer, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: CreateAclsRequest) -> CreateAclsResponse:
    bindings = [binding_of(each) async for each in Slices().of(request.creations)]
    good = [each for each in bindings if isinstance(each, AclBinding)]
    result: AdminResult = (ErrorCode.NONE, None)
    if good:
        outcome = await change_security(gateway, lambda now_ms, seen: CreateAcls(now_ms, good, seen))
        result = result_of(outcome)  # all of `good` are valid, so they are accepted or rejected together
    return CreateAclsResponse(
        results=[
            AclCreationResult(ErrorCode.INVALID_REQUEST, each) if isinstance(each, str) else AclCreationResult(*result)
            for each in bindings
        ]
    )
