"""The metrics of a flusher."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class FlusherMetrics:
    """The flusher's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.closed = counter(
            "penstock_flusher_closed_buffers",
            "Buffers closed, by reason: `size`, `timer`, `quiet` or `drain`.",
            ["reason"],
        )
        self.segments = counter(
            "penstock_flusher_segments",
            "Segments, by outcome: `committed`, `upload_given_up`, or the rejection.",
            ["outcome"],
        )
        for outcome in ("committed", "upload_given_up"):
            self.segments.labels(outcome)  # from zero on, so that an alert sees the first one
        self.stored_segments = counter(
            "penstock_flusher_stored_segments", "Segments stored, by store: `landing` or `final`.", ["store"]
        )
        self.segment_bytes = counter("penstock_flusher_segment_bytes", "Bytes of committed segments.")
        self.batches = counter(
            "penstock_flusher_batches", "Batches answered, by outcome: `accepted` or `refused`.", ["outcome"]
        )
        self.rejected_messages = counter(
            "penstock_flusher_refused_messages",
            "Messages rejected on arrival, by reason: `overload` or `malformed`.",
            ["reason"],
        )
        self.waits = histogram(
            "penstock_flusher_wait_seconds",
            "Waits of segments. `flush`: from the first byte to the close. `upload`: to the start of the "
            "upload. `turn`: for segments closed earlier.",
            ["for"],
            buckets=SECONDS,
        )
        self.put_seconds = histogram(
            "penstock_flusher_put_seconds",
            "Time from the start of an upload until the segment is stored, retries and hedges included.",
            buckets=SECONDS,
        )
        self.put_hedges = counter(
            "penstock_flusher_put_hedges",
            "Small segments that were put twice because the store was slow, by the faster put: `first` or `second`.",
            ["first"],
        )
        self.commit_seconds = histogram(
            "penstock_flusher_commit_seconds", "Time from the first attempt of a commit to its answer.", buckets=SECONDS
        )
        self.commit_segments = histogram(
            "penstock_flusher_commit_segments", "Segments in one commit.", buckets=(1, 2, 4, 8, 16, 32, 64)
        )
        self.held_bytes = gauge("penstock_flusher_held_bytes", "Bytes held in the byte budget, with overhead.")
        self.held_bytes_max = gauge(
            "penstock_flusher_held_bytes_max",
            "Most bytes in the byte budget (`flusher_bytes_max`); above it the flusher rejects messages.",
        )
        self.recent_bytes = gauge("penstock_flusher_recent_bytes", "Bytes of the newest segments kept in memory.")
        self.recent_reads = counter(
            "penstock_flusher_recent_reads",
            "Ranges of the newest segments that cachers asked for, by result: `hit` or `miss`.",
            ["result"],
        )
        self.recent_read_bytes = counter(
            "penstock_flusher_recent_read_bytes", "Bytes of the newest segments sent to cachers."
        )
