"""Holds clients to how many partitions they may make and delete per second (KIP-599).

Newer versions of the APIs are told of each topic for which nothing was left, and try it again; older ones know no such
answer, so theirs are done all the same, and paid for by waiting.
"""

from typing import Protocol

from penstock.contracts.configs.quotas import MUTATION_RATE
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock
from penstock_gateway.metadata.admin_commands import Verdict
from penstock_gateway.quotas.quota_cache import HasQuotas

EXCEEDED: Verdict = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class Needs(HasClock, HasQuotas, Protocol):
    """What this module uses of the gateway."""


def admits(gateway: Needs, client: Client, partitions: int, *, is_strict: bool) -> bool:
    """Whether so many partitions may be made or deleted now; if they may, they are counted."""
    if gateway.quotas.is_empty:
        return True
    meter = gateway.quotas.meter(MUTATION_RATE, client.user, client.client_id)
    if meter is None:
        return True
    now_s = gateway.clock.monotonic_s()
    if is_strict and meter.wait_s(now_s):
        return False
    meter.use(max(partitions, 1), now_s)
    return True
