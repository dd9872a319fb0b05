"""The subscriptions to metrics of clients, and their union for one client. Pure."""

import zlib
from collections.abc import Iterable

import msgspec

from penstock.contracts.configs.client_metrics import INTERVAL_DEFAULT_MS

ALL_METRICS = "*"
ID_BYTES = 4


class Subscription(msgspec.Struct, frozen=True):
    """Metrics by prefixes of their names, and how often clients push them."""

    metrics: tuple[str, ...]
    interval_ms: int


class Wanted(msgspec.Struct, frozen=True):
    """All that one client is to push: prefixes of names, none for no metrics, and the shortest interval."""

    metrics: tuple[str, ...]
    interval_ms: int


def union(subscriptions: Iterable[Subscription]) -> Wanted:
    """The metrics of several subscriptions, sorted; ALL_METRICS stands alone."""
    found = list(subscriptions)
    metrics = {prefix for each in found for prefix in each.metrics}
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS}
    return Wanted(tuple(sorted(metrics)), min([INTERVAL_DEFAULT_MS, *(each.interval_ms for each in found)]))


def subscription_id(wanted: Wanted, instance_id: bytes) -> int:
    """The number of a client instance's subscription: the same in all gateways, another one after each change."""
    text = f"{wanted.interval_ms} {' '.join(wanted.metrics)}"
    own = zlib.crc32(text.encode()) ^ zlib.crc32(instance_id)
    return int.from_bytes(own.to_bytes(ID_BYTES), signed=True)
