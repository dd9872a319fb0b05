"""The parts that the compactors of all clusters of a process share: the Spark session, and the slots for jobs."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from penstock.runtime.clock import Clock
from penstock.spark.session import close_session, is_alive, open_session
from penstock_compactor.config import CompactorConfig, spark_settings
from penstock_compactor.jobs.slots import JobSlots
from penstock_compactor.jobs.spark_runner import SparkRunner
from penstock_compactor.metrics import SparkMetrics

# Spark divides the cores evenly among the pools of clusters. Within a pool, the jobs run in their order.
FAIR = {"spark.scheduler.mode": "FAIR"}


class SharedWork:
    """The session starts with the first job of any cluster."""

    def __init__(
        self,
        config: CompactorConfig,
        clock: Clock,
        registry: CollectorRegistry,
        *,
        open_session: Callable[..., Any] = open_session,
        close_session: Callable[[Any], None] = close_session,
        is_alive: Callable[[Any], bool] = is_alive,
    ) -> None:
        """`registry` gets the metrics of the session."""
        settings = FAIR | spark_settings(config)
        self.slots = JobSlots(config.jobs_max)
        Gauge(
            "penstock_compactor_waiting_clusters",
            "Clusters that wait for a slot for a job; with one cluster always 0.",
            registry=registry,
        ).set_function(lambda: self.slots.waiting)
        self.spark = SparkRunner(
            open_session=lambda: open_session(f"penstock-{config.instance}", config.spark_master, settings),
            close_session=close_session,
            is_alive=is_alive,
            clock=clock,
            metrics=SparkMetrics(registry),
        )

    async def close(self) -> None:
        """End the session."""
        await self.spark.close()
