"""The metrics of a cacher."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class CacherMetrics:
    """The cacher's metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.chunks = Counter(
            "penstock_cacher_chunks", "Chunks asked for, by result: `hit` or `miss`.", ["result"], registry=registry
        )
        self.loads = Counter(
            "penstock_cacher_loads",
            "Loads of chunks, by source: `writer`, the memory of a flusher; `store`, one GET each.",
            ["source"],
            registry=registry,
        )
        self.load_bytes = Counter(
            "penstock_cacher_load_bytes", "Bytes loaded, by source: `writer` or `store`.", ["source"], registry=registry
        )
        self.load_failures = Counter(
            "penstock_cacher_load_failures", "Chunks that could not be loaded.", registry=registry
        )
        self.load_seconds = Histogram(
            "penstock_cacher_load_seconds",
            "Time to load a chunk, by source: `writer` or `store`.",
            ["source"],
            buckets=SECONDS,
            registry=registry,
        )
        self.served_bytes = Counter("penstock_cacher_served_bytes", "Bytes sent to gateways.", registry=registry)
        self.rejected_reads = Counter(
            "penstock_cacher_refused_reads",
            "Ranges not served, by reason: `overload`, `impossible` or `not_loaded`.",
            ["reason"],
            registry=registry,
        )
        self.evictions = Counter(
            "penstock_cacher_evictions", "Chunks evicted from the cache for other chunks.", registry=registry
        )
        self.held_bytes = Gauge(
            "penstock_cacher_held_bytes", "Bytes of the cached chunks, with overhead.", registry=registry
        )
