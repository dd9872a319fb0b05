"""ApiVersions: exactly the APIs and versions that the codec's table says we serve (KIP-35, KIP-511)."""

from gateway.context import Client, Gateway
from penstock.kafkawire.api import API_TABLE
from penstock.kafkawire.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.kafkawire.error_codes import ErrorCode


async def handle(gateway: Gateway, client: Client, version: int, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=_ranges())


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version that we do not know, to be sent as version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges())


def _ranges() -> list[ApiVersion]:
    return [ApiVersion(api.key, api.min_version, api.max_version) for api in API_TABLE.values()]
