"""Checks whether the cluster has reached a feature's level (ADR 0008), and waits if it may reach it soon."""

import asyncio
from typing import Protocol

from penstock.contracts.levels import SHARE_GROUPS_LEVEL, STREAMS_GROUPS_LEVEL
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE
from penstock_gateway.kafka.parts import HasClock, HasSequencer, HasSettings

# A cluster that is new, or whose last old sequencer has just gone, reaches its level seconds later. Until then clients
# wait or are asked to retry: an answer that the feature does not exist is final for them.
LEVEL_TIMEOUT_S = 10.0
POLL_S = 0.05
NO_BROKER_CONFIGS = "configurations of one broker are not supported until all sequencers of the cluster are upgraded"
NO_CLIENT_METRICS = "subscriptions to metrics are not supported until all sequencers of the cluster are upgraded"
NO_GROUP_CONFIGS = "configurations of groups are not supported until all sequencers of the cluster are upgraded"
NO_SHARE_GROUPS = "share groups are disabled, or not supported until all sequencers of the cluster are upgraded"
NO_STREAMS_GROUPS = "streams groups are not supported until all sequencers of the cluster are upgraded"


class HasLevel(HasClock, HasSequencer, Protocol):
    """The parts of the gateway that know the cluster's level."""


def may_rise(gateway: HasLevel) -> bool:
    """Whether the cluster's level may rise soon: the seen level was first reported a short while ago."""
    return gateway.clock.monotonic_s() - gateway.sequencer.level_seen_s < LEVEL_TIMEOUT_S


async def until_level(gateway: HasLevel, level: int) -> None:
    """Return when the cluster has reached a level, will not reach it soon, or is at an unknown level."""
    for _ in range(round(LEVEL_TIMEOUT_S / POLL_S)):
        seen = gateway.sequencer.seen_level
        if seen is None or seen >= level or not may_rise(gateway):
            return
        await asyncio.sleep(POLL_S)


class HasShareGroupLevel(HasLevel, HasSettings, Protocol):
    """The parts of the gateway that know whether there are share groups."""


def share_groups_error(gateway: HasShareGroupLevel) -> ErrorCode:
    """The error if share groups are off, or if some sequencer does not know them, which may end soon."""
    if not gateway.settings.share_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    return _groups_error(gateway, SHARE_GROUPS_LEVEL)


def streams_groups_error(gateway: HasLevel) -> ErrorCode:
    """The error if some sequencer does not know streams groups, which may end soon."""
    return _groups_error(gateway, STREAMS_GROUPS_LEVEL)


def _groups_error(gateway: HasLevel, needed_level: int) -> ErrorCode:
    level = gateway.sequencer.seen_level
    if level is not None and level >= needed_level:
        return ErrorCode.NONE
    return GROUPS_UNAVAILABLE if level is None or may_rise(gateway) else ErrorCode.UNSUPPORTED_VERSION
