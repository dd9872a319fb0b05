"""What a flusher counts and measures."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class FlusherMetrics:
    """The flusher's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.closed = Counter(
            "penstock_flusher_closed_buffers", "Buffers closed, by reason.", ["reason"], registry=registry
        )
        self.segments = Counter(
            "penstock_flusher_segments", "Segments by what became of them.", ["outcome"], registry=registry
        )
        self.segment_bytes = Counter(
            "penstock_flusher_segment_bytes", "Bytes of committed segments.", registry=registry
        )
        self.batches = Counter(
            "penstock_flusher_batches", "Batches answered, by outcome.", ["outcome"], registry=registry
        )
        self.rejected_messages = Counter(
            "penstock_flusher_refused_messages",
            "Messages refused on arrival, by reason.",
            ["reason"],
            registry=registry,
        )
        self.waits = Histogram(
            "penstock_flusher_wait_seconds",
            "What segments wait for: flush, the first byte for the buffer to close; upload, the closed buffer for its "
            "upload to begin; turn, the stored segment for those before it.",
            ["for"],
            buckets=SECONDS,
            registry=registry,
        )
        self.put_seconds = Histogram(
            "penstock_flusher_put_seconds",
            "From a segment's turn to upload until it is stored.",
            buckets=SECONDS,
            registry=registry,
        )
        self.put_hedges = Counter(
            "penstock_flusher_put_hedges",
            "Segments put twice because the store was slow, by who was first: first or second.",
            ["first"],
            registry=registry,
        )
        self.commit_seconds = Histogram(
            "penstock_flusher_commit_seconds",
            "From a commit's first sending to its answer.",
            buckets=SECONDS,
            registry=registry,
        )
        self.commit_segments = Histogram(
            "penstock_flusher_commit_segments",
            "Segments in one commit.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self.held_bytes = Gauge(
            "penstock_flusher_held_bytes", "Bytes held in the budget, overhead counted.", registry=registry
        )
        self.recent_bytes = Gauge(
            "penstock_flusher_recent_bytes", "Bytes of segments kept in memory.", registry=registry
        )
        self.recent_reads = Counter(
            "penstock_flusher_recent_reads",
            "Ranges asked for of recent segments, by result.",
            ["result"],
            registry=registry,
        )
        self.recent_read_bytes = Counter(
            "penstock_flusher_recent_read_bytes", "Bytes of recent segments served.", registry=registry
        )
