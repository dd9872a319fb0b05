"""The roles of an agent in a process of many clusters: one agent for each cluster, and the parts that these share."""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import msgspec
import structlog

from penstock.cli.agent.app import AgentApp
from penstock.cli.agent.roles import Role
from penstock.clusters.hosting import DRAIN_SHARE, HostedRole, ProcessParts
from penstock.clusters.record import ClusterQuotas
from penstock.runtime.process.config import HostingConfig, for_cluster
from penstock.runtime.process.garbage import GarbagePolicy, PolicyOfAnother, ScheduledPolicy
from penstock.runtime.process.shared_host import HostMaker


def hosted_agents(roles: Sequence[Role], configs: Sequence[HostingConfig]) -> HostedRole:
    """The agents of all clusters. `configs` are the settings of the roles, in their order."""
    hosted = [(role.name, config, role.hosted(config)) for role, config in zip(roles, configs, strict=True)]

    def make(own: HostingConfig, *, make_host: HostMaker, quotas: Callable[[], ClusterQuotas]) -> AgentApp:
        shared = make_host.shared(own.instance, len(hosted))
        return AgentApp(
            [
                (name, role.make(_of_cluster(config, own), make_host=shared.host_maker(name), quotas=quotas))
                for name, config, role in hosted
            ]
        )

    async def upkeep(parts: ProcessParts) -> None:
        async with asyncio.TaskGroup() as group:
            for name, _, role in hosted:
                if role.upkeep is not None:
                    context = contextvars.copy_context()
                    context.run(structlog.contextvars.bind_contextvars, role=name)
                    group.create_task(role.upkeep(parts), context=context)

    async def close() -> None:
        async with AsyncExitStack() as stack:
            for _, _, role in hosted:
                stack.push_async_callback(role.close)

    return HostedRole(make=make, upkeep=upkeep, close=close, garbage=_garbage_policy([each[2] for each in hosted]))


def _of_cluster(config: HostingConfig, own: HostingConfig) -> HostingConfig:
    share = int(config.drain_deadline_ms * DRAIN_SHARE)
    return msgspec.structs.replace(for_cluster(config, own.cluster), clusters="", drain_deadline_ms=share)


def _garbage_policy(hosted: Sequence[HostedRole]) -> GarbagePolicy:
    """The policy of the process. That of a sequencer would never free the cycles of other roles."""
    if len(hosted) == 1:
        return hosted[0].garbage
    has_policy = any(not isinstance(role.garbage, PolicyOfAnother) for role in hosted)
    return ScheduledPolicy() if has_policy else PolicyOfAnother()
