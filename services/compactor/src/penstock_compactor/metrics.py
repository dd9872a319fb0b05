"""What a compactor counts and measures."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000)


class CompactorMetrics:
    """The compactor's metrics, in one registry.

    Bytes written, over all levels, by bytes read of level 0 is the write amplification, without the flusher's own.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Counter(
            "penstock_compactor_jobs", "Jobs ended, by kind and result.", ["kind", "result"], registry=registry
        )
        self.running = Gauge("penstock_compactor_running_jobs", "Jobs in work.", ["kind"], registry=registry)
        self.job_seconds = Histogram(
            "penstock_compactor_job_seconds",
            "Time from a job's claim to its release, by kind.",
            ["kind"],
            buckets=SECONDS,
            registry=registry,
        )
        self.read_bytes = Counter(
            "penstock_compactor_read_bytes", "Bytes of batches merged, by their level.", ["level"], registry=registry
        )
        self.written_bytes = Counter(
            "penstock_compactor_written_bytes", "Bytes of outputs, by their level.", ["level"], registry=registry
        )
        self.task_seconds = Counter("penstock_compactor_task_seconds", "Time that tasks took.", registry=registry)
        self.task_cpu_seconds = Counter(
            "penstock_compactor_task_cpu_seconds", "CPU time that tasks took.", registry=registry
        )
        self.task_resident_bytes = Gauge(
            "penstock_compactor_task_resident_bytes", "Most memory that a worker had so far.", registry=registry
        )
        self.task_failures = Counter(
            "penstock_compactor_task_failures", "Outputs that were not written, by error.", ["kind"], registry=registry
        )
        self.runs = Counter(
            "penstock_compactor_runs", "Runs of outputs, by what the sequencers said.", ["result"], registry=registry
        )
        self.extents = Counter("penstock_compactor_extents", "Extents that were replaced.", registry=registry)
        self.waiting_segments = Gauge(
            "penstock_compactor_waiting_segments",
            "Segments that may be merged, by level.",
            ["level"],
            registry=registry,
        )
        self.waiting_bytes = Gauge(
            "penstock_compactor_waiting_bytes", "Live bytes of these, by level.", ["level"], registry=registry
        )
        self.waiting_ranges = Gauge(
            "penstock_compactor_waiting_ranges",
            "Ranges of these that a replay of everything reads, by level.",
            ["level"],
            registry=registry,
        )
        self.sessions = Counter("penstock_compactor_spark_sessions", "Spark sessions started.", registry=registry)
        self.is_session_open = Gauge(
            "penstock_compactor_spark_session_open", "1 while there is a Spark session.", registry=registry
        )
