"""AlterConfigs: replaces all configurations of a resource; those that a request does not name get their default."""

from typing import Protocol

from penstock.contracts.commands import ConfigOperation
from penstock.kafkawire.api.alter_configs import (
    API as API,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasNodes, HasSequencer, HasSettings, HasTopics
from penstock_gateway.metadata.config_updates import Alteration, Change, alter


class Needs(HasClock, HasNodes, HasSequencer, HasSettings, HasTopics, Protocol):
    """The parts of the gateway that this module uses."""


async def handle(gateway: Needs, client: Client, version: int, request: AlterConfigsRequest) -> AlterConfigsResponse:
    asked = [
        Alteration(
            (resource.resource_type, resource.resource_name),
            [Change(config.name, ConfigOperation.SET, config.value) for config in resource.configs],
            replace=True,
        )
        async for resource in Slices().of(request.resources)
    ]
    results = await alter(gateway, client, asked, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(*result, *resource) for resource, result in results.items()]
    )
