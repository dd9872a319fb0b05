"""Limits how many partitions a client may create and delete per second (KIP-599).

In newer versions of the APIs, each topic above the quota gets an error, and the client retries it. Older versions do
not know this error: their requests are done in full, and the client is throttled afterwards. As in Kafka, a topic with
another error does not count. So most commands are validated first if there is a quota.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.contracts.commands import Command, Outcome, Rejected
from penstock.contracts.configs.quotas import MUTATION_RATE
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.parts import HasClock, HasSequencer
from penstock_gateway.metadata.admin_commands import AdminResult, run_commands
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


class RunNeeds(Needs, HasSequencer, Protocol):
    """The parts of the gateway that run commands within a quota."""


async def run_within_quota(
    gateway: RunNeeds,
    client: Client,
    commands: Sequence[Command],
    partitions: Sequence[int],
    timeout_ms: int,
    *,
    is_strict: bool,
) -> list[Outcome | None]:
    """One outcome per command, None for one above the quota; `partitions` has the new partitions of each."""
    if gateway.quotas.is_empty or gateway.quotas.meter(MUTATION_RATE, client.user, client.client_id) is None:
        return list(await run_commands(gateway, commands, timeout_ms))
    validated = await run_commands(gateway, commands, timeout_ms, validate_only=True)
    outcomes: list[Outcome | None] = [each if isinstance(each, Rejected) else None for each in validated]
    admitted = [
        place
        for place, rejected in enumerate(outcomes)
        if rejected is None and admits(gateway, client, partitions[place], is_strict=is_strict)
    ]
    done = await run_commands(gateway, [commands[place] for place in admitted], timeout_ms)
    for place, outcome in zip(admitted, done, strict=True):
        outcomes[place] = outcome
    return outcomes
