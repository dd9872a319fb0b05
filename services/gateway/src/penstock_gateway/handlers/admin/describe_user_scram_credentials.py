"""DescribeUserScramCredentials: lists the mechanisms and iterations of users' passwords (KIP-554)."""

from penstock.contracts.queries.security import User
from penstock.kafkawire.api.describe_user_scram_credentials import (
    API as API,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import ADMINISTRATION_UNAVAILABLE
from penstock_gateway.metadata.admin_commands import duplicates
from penstock_gateway.security.security_cache import HasSecurity


async def handle(
    gateway: HasSecurity, client: Client, version: int, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not await gateway.security.refresh():
        return DescribeUserScramCredentialsResponse(
            error_code=ADMINISTRATION_UNAVAILABLE, error_message="no sequencer answered in time"
        )
    users = {user.name: user for user in gateway.security.users()}
    names = [user.name for user in request.users or []]
    repeated = duplicates(names)
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _result(name, users.get(name), name in repeated)
            async for name in Slices().of(dict.fromkeys(names or users))
        ],
    )


def _result(name: str, user: User | None, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
    if user is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    infos = [CredentialInfo(each.mechanism, each.iterations) for each in user.verifiers]
    return DescribeUserScramCredentialsResult(name, error_message=None, credential_infos=infos)
