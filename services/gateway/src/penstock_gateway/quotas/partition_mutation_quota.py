"""Limits how many partitions a client may create and delete per second (KIP-599).

In newer versions of the APIs, each topic above the quota gets an error, and the client retries it. Older versions do
not know this error: their requests are done in full, and the client is throttled afterwards.
"""

from typing import Protocol

from penstock.contracts.configs.quotas import MUTATION_RATE
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock
from penstock_gateway.metadata.admin_commands import AdminResult
from penstock_gateway.quotas.quota_cache import HasQuotas

EXCEEDED: AdminResult = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class Needs(HasClock, HasQuotas, Protocol):
    """The parts of the gateway that this module uses."""


def admits(gateway: Needs, client: Client, partitions: int, *, is_strict: bool) -> bool:
    """Whether the client may create or delete this number of partitions now; if so, count them.

    Without `is_strict` the answer is always yes.
    """
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
