"""IncrementalAlterConfigs: changes only the configurations that a request names; the others stay (KIP-339)."""

from typing import Protocol

from penstock.kafkawire.api.incremental_alter_configs import (
    API as API,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasNodes, HasSequencer, HasSettings, HasTopics
from penstock_gateway.metadata.config_updates import Alteration, Change, alter


class Needs(HasClock, HasNodes, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(
    gateway: Needs, client: Client, version: int, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    asked = [
        Alteration(
            (resource.resource_type, resource.resource_name),
            [Change(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        async for resource in Slices().of(request.resources)
    ]
    results = await alter(gateway, client, asked, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(*result, *resource) for resource, result in results.items()]
    )
