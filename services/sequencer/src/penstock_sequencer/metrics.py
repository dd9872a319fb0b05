"""The metrics of a sequencer."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class SequencerMetrics:
    """The sequencer's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.applied_sequence = gauge(
            "penstock_sequencer_applied_sequence", "Journal sequence of the last applied entry."
        )
        self.level = gauge(
            "penstock_sequencer_level", "Level of the cluster: the set of commands that all replicas understand."
        )
        self.transactional_ids = gauge("penstock_sequencer_transactional_ids", "Transactional ids in the state.")
        self.ongoing_transactions = gauge(
            "penstock_sequencer_ongoing_transactions",
            "Transactions that are not ended yet; read_committed consumers wait for them.",
        )
        self.chain_check = gauge(
            "penstock_sequencer_chain_check",
            "First 48 bits of the running hash over the journal. Replicas with the same applied sequence have "
            "the same value.",
        )
        self.halted = gauge(
            "penstock_sequencer_halted", "1 when the replica found the journal broken, just before it ends."
        )
        self.entries = counter("penstock_sequencer_entries", "Journal entries applied.")
        self.commands = counter("penstock_sequencer_commands", "Commands applied.")
        self.apply_seconds = histogram("penstock_sequencer_apply_seconds", "Time to apply one entry.", buckets=SECONDS)
        self.append_seconds = histogram(
            "penstock_sequencer_append_seconds",
            "Time from the first append of an entry until this replica applied it.",
            buckets=SECONDS,
        )
        self.append_retries = counter("penstock_sequencer_append_retries", "Appends sent again because no answer came.")
        self.proposal_seconds = histogram(
            "penstock_sequencer_proposal_seconds",
            "Time from the arrival of a request's commands to their outcomes.",
            buckets=SECONDS,
        )
        self.entry_requests = histogram(
            "penstock_sequencer_entry_requests",
            "Requests that share one entry (group commit).",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        )
        self.held_bytes = gauge("penstock_sequencer_held_bytes", "Bytes of commands not yet answered.")
        self.requests = counter(
            "penstock_sequencer_requests",
            "Requests answered, by name and result: `answered` or `failed`.",
            ["name", "result"],
        )
        self.stalls = counter(
            "penstock_sequencer_stalls",
            "Stalls of the process that were so long that it rejected the commands in its queues.",
        )
        self.unannounced = counter(
            "penstock_sequencer_unannounced_entries", "Entries whose announcement was too large for one message."
        )
        self.stored_bytes = gauge("penstock_sequencer_stored_bytes", "Bytes of live records, as they are stored.")
        self.stored_bytes_quota = gauge(
            "penstock_sequencer_stored_bytes_quota",
            "Quota of the virtual cluster for its stored bytes, 0 without one. Gateways reject records above it.",
        )
        self._add_tables(registry)
        self._add_share_groups(registry)
        self._add_housekeeping(registry)

    def _add_tables(self, registry: CollectorRegistry) -> None:
        """Add the metrics of the tables that all clients share."""
        gauge = partial(Gauge, registry=registry)
        self.table_rows = gauge(
            "penstock_sequencer_table_rows",
            "Rows in a table that all clients share; for producers_of_one_partition, in the fullest partition.",
            ["table"],
        )
        self.table_rows_max = gauge(
            "penstock_sequencer_table_rows_max",
            "Most rows in that table; from 80% on the service is degraded.",
            ["table"],
        )
        self.table_rows_largest_principal = gauge(
            "penstock_sequencer_table_rows_largest_principal",
            "Rows of the principal that has most of that table. The degraded state and the log name it.",
            ["table"],
        )

    def _add_share_groups(self, registry: CollectorRegistry) -> None:
        """Add the metrics of share groups."""
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self.share_groups = gauge("penstock_sequencer_share_groups", "Share groups in the state.")
        self.share_records = gauge(
            "penstock_sequencer_share_records", "Records in flight in share groups: acquired, or available again."
        )
        self.share_locks_ended = counter(
            "penstock_sequencer_share_locks_ended",
            "Records of share groups whose lock ended without an acknowledgement. Each replica counts all, and "
            "again when it replays the journal.",
        )

    def _add_housekeeping(self, registry: CollectorRegistry) -> None:
        """Add the metrics of the custodian's work."""
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.custodian = gauge(
            "penstock_sequencer_custodian",
            "1 while this replica is custodian: it archives the journal and takes snapshots.",
        )
        self.archived_sequence = gauge(
            "penstock_sequencer_archived_sequence", "Journal sequence up to which this replica archived the journal."
        )
        self.archive_bytes = counter("penstock_sequencer_archive_bytes", "Bytes stored in the archive of the journal.")
        self.archive_failures = counter(
            "penstock_sequencer_archive_failures", "Failed attempts to archive the journal; each is tried again."
        )
        self.snapshot_sequence = gauge(
            "penstock_sequencer_snapshot_sequence", "Journal sequence of the newest verified snapshot."
        )
        self.snapshot_age_seconds = gauge(
            "penstock_sequencer_snapshot_age_seconds",
            "Age of the newest verified snapshot; without one, the time since the first custodian.",
        )
        self.snapshot_bytes = gauge(
            "penstock_sequencer_snapshot_bytes", "Size of the last snapshot that this replica took."
        )
        self.snapshot_seconds = histogram(
            "penstock_sequencer_snapshot_seconds",
            "Time to take, store, verify and record a snapshot.",
            buckets=(0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
        )
        self.snapshot_failures = counter(
            "penstock_sequencer_snapshot_failures", "Failed snapshots and purges; each is tried again."
        )
