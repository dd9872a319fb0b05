"""The metrics of a janitor."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class JanitorMetrics:
    """The janitor's metrics, in one registry.

    Bytes by state come from the journal, and are the same at every janitor. Each janitor counts its own orphans.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.bytes = Gauge(
            "penstock_janitor_bytes",
            "Bytes of objects, by state: `live`; `dead`, in live segments; `condemned`, dead segments; "
            "`orphaned`, as found by this janitor's last sweep.",
            ["state"],
            registry=registry,
        )
        self.segments = Gauge(
            "penstock_janitor_segments",
            "Segments, by state: `live`, or `condemned` for dead ones.",
            ["state"],
            registry=registry,
        )
        self.extents = Gauge("penstock_janitor_extents", "Extents, those to be removed included.", registry=registry)
        self.dead_seconds = Gauge(
            "penstock_janitor_condemned_seconds",
            "Age of the oldest dead segment, by the journal's clock.",
            registry=registry,
        )
        self.retention_lag_seconds = Gauge(
            "penstock_janitor_retention_lag_seconds",
            "Time since the oldest records found by the last search should have been removed.",
            registry=registry,
        )
        self.clock_ahead_seconds = Gauge(
            "penstock_janitor_clock_ahead_seconds",
            "Time by which the journal's clock is ahead of the janitor's.",
            registry=registry,
        )
        self.overdue_bytes = Gauge(
            "penstock_janitor_overdue_bytes",
            "Bytes of records that should already have been removed.",
            registry=registry,
        )
        self.waiting_logs = Gauge(
            "penstock_janitor_waiting_logs", "Partitions with extents that are still to be removed.", registry=registry
        )
        self.dropped_extents = Counter(
            "penstock_janitor_dropped_extents", "Extents removed by commands of this janitor.", registry=registry
        )
        self.dropped_bytes = Counter(
            "penstock_janitor_dropped_bytes",
            "Bytes of records in the extents that this janitor removed.",
            registry=registry,
        )
        self.deleted_objects = Counter(
            "penstock_janitor_deleted_objects",
            "Objects deleted, by reason: `condemned`, `orphan` or `unfinished`.",
            ["reason"],
            registry=registry,
        )
        self.deleted_bytes = Counter(
            "penstock_janitor_deleted_bytes",
            "Bytes of deleted objects, by reason: `condemned`, `orphan` or `unfinished`.",
            ["reason"],
            registry=registry,
        )
        self.swept_objects = Counter("penstock_janitor_swept_objects", "Objects listed in sweeps.", registry=registry)
        self.unknown_objects = Gauge(
            "penstock_janitor_unknown_objects",
            "Objects under keys that are not Penstock's, as of the last sweep; they are never deleted.",
            ["where"],
            registry=registry,
        )
        self.failures = Counter(
            "penstock_janitor_failures", "Failed rounds, by loop; each is tried again.", ["loop"], registry=registry
        )
