"""The metrics of a flusher."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class FlusherMetrics:
    """The flusher's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.closed = Counter(
            "penstock_flusher_closed_buffers",
            "Buffers closed, by reason: `size`, `timer`, `quiet` or `drain`.",
            ["reason"],
            registry=registry,
        )
        self.segments = Counter(
            "penstock_flusher_segments",
            "Segments, by outcome: `committed`, `upload_given_up`, or the rejection.",
            ["outcome"],
            registry=registry,
        )
        self.segment_bytes = Counter(
            "penstock_flusher_segment_bytes", "Bytes of committed segments.", registry=registry
        )
        self.batches = Counter(
            "penstock_flusher_batches",
            "Batches answered, by outcome: `accepted` or `refused`.",
            ["outcome"],
            registry=registry,
        )
        self.rejected_messages = Counter(
            "penstock_flusher_refused_messages",
            "Messages rejected on arrival, by reason: `overload` or `malformed`.",
            ["reason"],
            registry=registry,
        )
        self.waits = Histogram(
            "penstock_flusher_wait_seconds",
            "Waits of segments. `flush`: from the first byte to the close. `upload`: to the start of the "
            "upload. `turn`: for segments closed earlier.",
            ["for"],
            buckets=SECONDS,
            registry=registry,
        )
        self.put_seconds = Histogram(
            "penstock_flusher_put_seconds",
            "Time from the start of an upload until the segment is stored, retries and hedges included.",
            buckets=SECONDS,
            registry=registry,
        )
        self.put_hedges = Counter(
            "penstock_flusher_put_hedges",
            "Small segments that were put twice because the store was slow, by the faster put: `first` or `second`.",
            ["first"],
            registry=registry,
        )
        self.commit_seconds = Histogram(
            "penstock_flusher_commit_seconds",
            "Time from the first attempt of a commit to its answer.",
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
            "penstock_flusher_held_bytes", "Bytes held in the byte budget, with overhead.", registry=registry
        )
        self.recent_bytes = Gauge(
            "penstock_flusher_recent_bytes", "Bytes of the newest segments kept in memory.", registry=registry
        )
        self.recent_reads = Counter(
            "penstock_flusher_recent_reads",
            "Ranges of the newest segments that cachers asked for, by result: `hit` or `miss`.",
            ["result"],
            registry=registry,
        )
        self.recent_read_bytes = Counter(
            "penstock_flusher_recent_read_bytes", "Bytes of the newest segments sent to cachers.", registry=registry
        )
