"""The metrics of the stores of a quorum."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class QuorumMetrics:
    """The metrics of all three stores, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.up = Gauge(
            "penstock_landing_store_up",
            "1 if this one of three landing stores answered its last request, else 0.",
            ["store"],
            registry=registry,
        )
        self.puts = Counter(
            "penstock_landing_store_puts",
            "Puts to each of three landing stores, by outcome: `stored`, `failed`, `conflict`, or `skipped` because "
            "the store is behind.",
            ["store", "outcome"],
            registry=registry,
        )
        self.behind_bytes = Gauge(
            "penstock_landing_store_behind_bytes",
            "Bytes on their way to this landing store that the two others have stored already.",
            ["store"],
            registry=registry,
        )
