"""Queries about subscriptions to metrics of clients (KIP-714)."""

import msgspec


class ClientMetricsQuery(msgspec.Struct, frozen=True, array_like=True):
    """All subscriptions."""

    min_sequence: int
    fresh: bool = False


class ClientMetricsView(msgspec.Struct, frozen=True, array_like=True):
    """The values that each subscription sets, by name; the entry `altered_sequence` made the last change."""

    sequence: int
    altered_sequence: int  # 0 if there is none
    subscriptions: dict[str, dict[str, str]]
    failure: str | None = None
