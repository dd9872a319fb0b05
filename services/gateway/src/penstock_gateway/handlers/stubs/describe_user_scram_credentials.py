"""DescribeUserScramCredentials: finds no credentials; Kafka's tools ask for them together with the quotas of users."""

from penstock.kafkawire.api.describe_user_scram_credentials import (
    API as API,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.metadata.admin_commands import duplicates


async def handle(
    gateway: object, client: Client, version: int, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    names = [user.name for user in request.users or []]
    repeated = duplicates(names)
    return DescribeUserScramCredentialsResponse(
        results=[_result(name, name in repeated) async for name in Slices().of(dict.fromkeys(names))]
    )


def _result(name: str, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
    message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, message)
