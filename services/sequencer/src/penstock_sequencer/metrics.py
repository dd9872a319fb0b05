"""What a sequencer counts and measures."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class SequencerMetrics:
    """The sequencer's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.applied_sequence = Gauge(
            "penstock_sequencer_applied_sequence", "Journal sequence applied last.", registry=registry
        )
        self.level = Gauge(
            "penstock_sequencer_level", "What all replicas understand, as this one has applied it.", registry=registry
        )
        self.transactional_ids = Gauge(
            "penstock_sequencer_transactional_ids", "Transactional ids that are known.", registry=registry
        )
        self.ongoing_transactions = Gauge(
            "penstock_sequencer_ongoing_transactions",
            "Transactions whose end is still to come; readers of what is committed wait for them.",
            registry=registry,
        )
        self.chain_check = Gauge(
            "penstock_sequencer_chain_check",
            "The first bits of the running hash over the journal; equal wherever the applied sequence is.",
            registry=registry,
        )
        self.halted = Gauge(
            "penstock_sequencer_halted",
            "1 when the journal turned out to be broken, just before the end.",
            registry=registry,
        )
        self.entries = Counter("penstock_sequencer_entries", "Journal entries applied.", registry=registry)
        self.commands = Counter("penstock_sequencer_commands", "Commands applied.", registry=registry)
        self.apply_seconds = Histogram(
            "penstock_sequencer_apply_seconds", "Applying one entry.", buckets=SECONDS, registry=registry
        )
        self.append_seconds = Histogram(
            "penstock_sequencer_append_seconds",
            "From an entry's first append until the own tail has applied it.",
            buckets=SECONDS,
            registry=registry,
        )
        self.append_retries = Counter(
            "penstock_sequencer_append_retries", "Appends sent again because no answer came.", registry=registry
        )
        self.proposal_seconds = Histogram(
            "penstock_sequencer_proposal_seconds",
            "From the arrival of a request's commands until their outcomes.",
            buckets=SECONDS,
            registry=registry,
        )
        self.entry_requests = Histogram(
            "penstock_sequencer_entry_requests",
            "Requests that share an entry: group commit.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
            registry=registry,
        )
        self.held_bytes = Gauge(
            "penstock_sequencer_held_bytes", "Bytes of commands not answered yet.", registry=registry
        )
        self.requests = Counter(
            "penstock_sequencer_requests",
            "Requests answered, by name and result.",
            ["name", "result"],
            registry=registry,
        )
        self.stalls = Counter(
            "penstock_sequencer_stalls",
            "Times that the process stood still for so long that commands in its queues were void.",
            registry=registry,
        )
        self.unannounced = Counter(
            "penstock_sequencer_unannounced_entries", "Entries whose announcement fits no message.", registry=registry
        )
        self._add_share_groups(registry)
        self._add_housekeeping(registry)

    def _add_share_groups(self, registry: CollectorRegistry) -> None:
        """What there is of share groups."""
        self.share_groups = Gauge("penstock_sequencer_share_groups", "Share groups that are known.", registry=registry)
        self.share_records = Gauge(
            "penstock_sequencer_share_records",
            "Records in flight in share groups: acquired, or to come again.",
            registry=registry,
        )
        self.share_locks_ended = Counter(
            "penstock_sequencer_share_locks_ended",
            "Records of share groups whose member said nothing of them in time.",
            registry=registry,
        )

    def _add_housekeeping(self, registry: CollectorRegistry) -> None:
        """What the custodian does."""
        self.custodian = Gauge(
            "penstock_sequencer_custodian", "1 while this replica keeps the journal's house.", registry=registry
        )
        self.archived_sequence = Gauge(
            "penstock_sequencer_archived_sequence",
            "Journal sequence up to which this replica has archived the journal.",
            registry=registry,
        )
        self.archive_bytes = Counter(
            "penstock_sequencer_archive_bytes", "Bytes stored in the journal's archive.", registry=registry
        )
        self.archive_failures = Counter(
            "penstock_sequencer_archive_failures",
            "Times that archiving the journal failed, to be tried again.",
            registry=registry,
        )
        self.snapshot_sequence = Gauge(
            "penstock_sequencer_snapshot_sequence",
            "Journal sequence of the newest verified snapshot.",
            registry=registry,
        )
        self.snapshot_age_seconds = Gauge(
            "penstock_sequencer_snapshot_age_seconds",
            "Since the newest verified snapshot, or since there are custodians if there is none yet.",
            registry=registry,
        )
        self.snapshot_bytes = Gauge(
            "penstock_sequencer_snapshot_bytes", "Size of the last snapshot that this replica took.", registry=registry
        )
        self.snapshot_seconds = Histogram(
            "penstock_sequencer_snapshot_seconds",
            "Taking, storing, verifying and noting a snapshot.",
            buckets=(0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
            registry=registry,
        )
        self.snapshot_failures = Counter(
            "penstock_sequencer_snapshot_failures",
            "Times that a snapshot or what follows it failed, to be tried again.",
            registry=registry,
        )
