"""IncrementalAlterConfigs: what a request names of a resource's configurations changes, the rest stays (KIP-339)."""

from penstock.kafkawire.api.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock_gateway.context import Client, Gateway
from penstock_gateway.metadata.config_updates import Alteration, Change, alter


async def handle(
    gateway: Gateway, client: Client, version: int, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    asked = [
        Alteration(
            (resource.resource_type, resource.resource_name),
            [Change(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    verdicts = await alter(gateway, asked, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(*verdict, *resource) for resource, verdict in verdicts.items()]
    )
