"""The metrics of a sequencer."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class SequencerMetrics:
    """The sequencer's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.applied_sequence = Gauge(
            "penstock_sequencer_applied_sequence", "Journal sequence of the last applied entry.", registry=registry
        )
        self.level = Gauge(
            "penstock_sequencer_level",
            "Level of the cluster: the set of commands that all replicas understand.",
            registry=registry,
        )
        self.transactional_ids = Gauge(
            "penstock_sequencer_transactional_ids", "Transactional ids in the state.", registry=registry
        )
        self.ongoing_transactions = Gauge(
            "penstock_sequencer_ongoing_transactions",
            "Transactions that are not ended yet; read_committed consumers wait for them.",
            registry=registry,
        )
        self.chain_check = Gauge(
            "penstock_sequencer_chain_check",
            "First 48 bits of the running hash over the journal. Replicas with the same applied sequence have "
            "the same value.",
            registry=registry,
        )
        self.halted = Gauge(
            "penstock_sequencer_halted",
            "1 when the replica found the journal broken, just before it ends.",
            registry=registry,
        )
        self.entries = Counter("penstock_sequencer_entries", "Journal entries applied.", registry=registry)
        self.commands = Counter("penstock_sequencer_commands", "Commands applied.", registry=registry)
        self.apply_seconds = Histogram(
            "penstock_sequencer_apply_seconds", "Time to apply one entry.", buckets=SECONDS, registry=registry
        )
        self.append_seconds = Histogram(
            "penstock_sequencer_append_seconds",
            "Time from the first append of an entry until this replica applied it.",
            buckets=SECONDS,
            registry=registry,
        )
        self.append_retries = Counter(
            "penstock_sequencer_append_retries", "Appends sent again because no answer came.", registry=registry
        )
        self.proposal_seconds = Histogram(
            "penstock_sequencer_proposal_seconds",
            "Time from the arrival of a request's commands to their outcomes.",
            buckets=SECONDS,
            registry=registry,
        )
        self.entry_requests = Histogram(
            "penstock_sequencer_entry_requests",
            "Requests that share one entry (group commit).",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
            registry=registry,
        )
        self.held_bytes = Gauge(
            "penstock_sequencer_held_bytes", "Bytes of commands not yet answered.", registry=registry
        )
        self.requests = Counter(
            "penstock_sequencer_requests",
            "Requests answered, by name and result: `answered` or `failed`.",
            ["name", "result"],
            registry=registry,
        )
        self.stalls = Counter(
            "penstock_sequencer_stalls",
            "Stalls of the process that were so long that it rejected the commands in its queues.",
            registry=registry,
        )
        self.unannounced = Counter(
            "penstock_sequencer_unannounced_entries",
            "Entries whose announcement was too large for one message.",
            registry=registry,
        )
        self._add_share_groups(registry)
        self._add_housekeeping(registry)

    def _add_share_groups(self, registry: CollectorRegistry) -> None:
        """Add the metrics of share groups."""
        self.share_groups = Gauge("penstock_sequencer_share_groups", "Share groups in the state.", registry=registry)
        self.share_records = Gauge(
            "penstock_sequencer_share_records",
            "Records in flight in share groups: acquired, or available again.",
            registry=registry,
        )
        self.share_locks_ended = Counter(
            "penstock_sequencer_share_locks_ended",
            "Records of share groups whose lock ended without an acknowledgement. Each replica counts all, and "
            "again when it replays the journal.",
            registry=registry,
        )

    def _add_housekeeping(self, registry: CollectorRegistry) -> None:
        """Add the metrics of the custodian's work."""
        self.custodian = Gauge(
            "penstock_sequencer_custodian",
            "1 while this replica is custodian: it archives the journal and takes snapshots.",
            registry=registry,
        )
        self.archived_sequence = Gauge(
            "penstock_sequencer_archived_sequence",
            "Journal sequence up to which this replica archived the journal.",
            registry=registry,
        )
        self.archive_bytes = Counter(
            "penstock_sequencer_archive_bytes", "Bytes stored in the archive of the journal.", registry=registry
        )
        self.archive_failures = Counter(
            "penstock_sequencer_archive_failures",
            "Failed attempts to archive the journal; each is tried again.",
            registry=registry,
        )
        self.snapshot_sequence = Gauge(
            "penstock_sequencer_snapshot_sequence",
            "Journal sequence of the newest verified snapshot.",
            registry=registry,
        )
        self.snapshot_age_seconds = Gauge(
            "penstock_sequencer_snapshot_age_seconds",
            "Age of the newest verified snapshot; without one, the time since the first custodian.",
            registry=registry,
        )
        self.snapshot_bytes = Gauge(
            "penstock_sequencer_snapshot_bytes", "Size of the last snapshot that this replica took.", registry=registry
        )
        self.snapshot_seconds = Histogram(
            "penstock_sequencer_snapshot_seconds",
            "Time to take, store, verify and record a snapshot.",
            buckets=(0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
            registry=registry,
        )
        self.snapshot_failures = Counter(
            "penstock_sequencer_snapshot_failures",
            "Failed snapshots and purges; each is tried again.",
            registry=registry,
        )
