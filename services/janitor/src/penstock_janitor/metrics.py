"""What a janitor counts and measures."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class JanitorMetrics:
    """The janitor's metrics, in one registry.

    Bytes by state are the journal's, the same at every janitor; those of orphans are what this one has found.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.bytes = Gauge(
            "penstock_janitor_bytes",
            "Bytes of objects: live, dead in live ones, condemned, and orphaned ones that the last sweep found.",
            ["state"],
            registry=registry,
        )
        self.segments = Gauge("penstock_janitor_segments", "Segments, by state.", ["state"], registry=registry)
        self.extents = Gauge("penstock_janitor_extents", "Extents, those to be dropped included.", registry=registry)
        self.dead_seconds = Gauge(
            "penstock_janitor_condemned_seconds",
            "Age of the oldest condemned segment by the journal's clock.",
            registry=registry,
        )
        self.retention_lag_seconds = Gauge(
            "penstock_janitor_retention_lag_seconds",
            "How long ago the oldest records that this janitor found should have been gone.",
            registry=registry,
        )
        self.clock_ahead_seconds = Gauge(
            "penstock_janitor_clock_ahead_seconds",
            "How far the journal's clock is ahead of this janitor's.",
            registry=registry,
        )
        self.overdue_bytes = Gauge(
            "penstock_janitor_overdue_bytes", "Bytes of records that should be gone.", registry=registry
        )
        self.waiting_logs = Gauge(
            "penstock_janitor_waiting_logs", "Logs with extents that are to be dropped.", registry=registry
        )
        self.dropped_extents = Counter(
            "penstock_janitor_dropped_extents", "Extents dropped by this janitor's commands.", registry=registry
        )
        self.dropped_bytes = Counter("penstock_janitor_dropped_bytes", "Bytes of records in them.", registry=registry)
        self.deleted_objects = Counter(
            "penstock_janitor_deleted_objects", "Objects deleted, by reason.", ["reason"], registry=registry
        )
        self.deleted_bytes = Counter(
            "penstock_janitor_deleted_bytes", "Bytes of them, by reason.", ["reason"], registry=registry
        )
        self.swept_objects = Counter("penstock_janitor_swept_objects", "Objects listed.", registry=registry)
        self.unknown_objects = Gauge(
            "penstock_janitor_unknown_objects",
            "Objects under keys that are not Penstock's, which stay, as of the last sweep.",
            ["where"],
            registry=registry,
        )
        self.failures = Counter(
            "penstock_janitor_failures", "Steps that failed and are tried again, by loop.", ["loop"], registry=registry
        )
