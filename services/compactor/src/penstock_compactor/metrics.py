"""The metrics of a compactor."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000)


class CompactorMetrics:
    """The metrics of one cluster's compactor, in one registry.

    Bytes written at all levels, divided by bytes read at level 0, are the write amplification after the flusher.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Counter(
            "penstock_compactor_jobs", "Ended jobs, by kind and result.", ["kind", "result"], registry=registry
        )
        self.running = Gauge("penstock_compactor_running_jobs", "Running jobs, by kind.", ["kind"], registry=registry)
        self.job_seconds = Histogram(
            "penstock_compactor_job_seconds",
            "Time of a job from its lease to its release, by kind.",
            ["kind"],
            buckets=SECONDS,
            registry=registry,
        )
        self.read_bytes = Counter(
            "penstock_compactor_read_bytes",
            "Bytes of batches merged, by the level that they were read from.",
            ["level"],
            registry=registry,
        )
        self.written_bytes = Counter(
            "penstock_compactor_written_bytes",
            "Bytes of outputs, by the level that they were written to.",
            ["level"],
            registry=registry,
        )
        self.task_seconds = Counter("penstock_compactor_task_seconds", "Run time of tasks.", registry=registry)
        self.task_cpu_seconds = Counter("penstock_compactor_task_cpu_seconds", "CPU time of tasks.", registry=registry)
        self.task_resident_bytes = Gauge(
            "penstock_compactor_task_resident_bytes", "Largest memory of a worker process so far.", registry=registry
        )
        self.task_failures = Counter(
            "penstock_compactor_task_failures", "Outputs that were not written, by error.", ["kind"], registry=registry
        )
        self.runs = Counter(
            "penstock_compactor_runs",
            "Runs of outputs, by the sequencers' result; all but `none` are wasted work.",
            ["result"],
            registry=registry,
        )
        self.extents = Counter("penstock_compactor_extents", "Extents replaced.", registry=registry)
        self.waiting_segments = Gauge(
            "penstock_compactor_waiting_segments",
            "Segments that can still be merged, by level.",
            ["level"],
            registry=registry,
        )
        self.waiting_bytes = Gauge(
            "penstock_compactor_waiting_bytes",
            "Live bytes of the segments that can still be merged, by level.",
            ["level"],
            registry=registry,
        )
        self.waiting_ranges = Gauge(
            "penstock_compactor_waiting_ranges",
            "Ranges that a read of all segments that can still be merged needs, by level.",
            ["level"],
            registry=registry,
        )


class SparkMetrics:
    """The metrics of the Spark session, which all clusters of a process share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sessions = Counter("penstock_compactor_spark_sessions", "Spark sessions started.", registry=registry)
        self.is_session_open = Gauge(
            "penstock_compactor_spark_session_open", "1 while a Spark session is open.", registry=registry
        )
