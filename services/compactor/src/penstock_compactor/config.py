"""The compactor's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import ServiceConfig
from penstock_compactor.keys.plan import KeyLimits
from penstock_compactor.planning.planner import PlanLimits

MIB = 1024 * 1024
CONF_SEPARATOR = ";"


class CompactorConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of one compactor process."""

    spark_master: Annotated[str, Meta(description="local[*], spark://host:port, k8s://...")] = "local[*]"
    spark_conf: Annotated[str, Meta(description="Spark's own settings, key=value, separated by semicolons")] = ""
    spark_idle_s: Annotated[int, Meta(ge=1, description="a session without work for that long is ended")] = 600
    jobs_max: Annotated[int, Meta(ge=1, le=64, description="jobs at the same time")] = 2
    plan_interval_ms: Annotated[int, Meta(ge=10, description="between two looks for work")] = 5_000
    merge_flushed_count: Annotated[
        int, Meta(ge=2, description="flushed segments that are merged when so many wait")
    ] = 32
    merge_flushed_bytes: Annotated[int, Meta(ge=1, description="or so many bytes of them")] = 256 * MIB
    merge_flushed_age_ms: Annotated[int, Meta(ge=0, description="or two, when the oldest waited that long")] = 120_000
    merge_class_count: Annotated[int, Meta(ge=2, description="merged segments of a size that are merged again")] = 16
    merge_class_age_ms: Annotated[int, Meta(ge=0, description="or two and more of level 1, after that long")] = (
        3_600_000
    )
    merge_topic_bytes_min: Annotated[int, Meta(ge=1, description="less of a topic gets no segment of its own")] = (
        4 * MIB
    )
    keys_interval_ms: Annotated[int, Meta(ge=10, description="between two looks for key compaction")] = 30_000
    keys_flushed_age_ms: Annotated[
        int, Meta(ge=0, description="after which key compaction takes flushed segments that nobody merged")
    ] = 600_000
    keys_dirty_bytes_min: Annotated[int, Meta(ge=0, description="fewer new bytes of a log wait")] = MIB
    keys_dirty_age_ms: Annotated[int, Meta(ge=0, description="but for no longer than that")] = 300_000

    def __post_init__(self) -> None:
        super().__post_init__()
        spark_settings(self)


def plan_limits(config: CompactorConfig) -> PlanLimits:
    """The planner's limits."""
    return PlanLimits(
        flushed_count=config.merge_flushed_count,
        flushed_bytes=config.merge_flushed_bytes,
        flushed_age_ms=config.merge_flushed_age_ms,
        class_count=config.merge_class_count,
        class_age_ms=config.merge_class_age_ms,
        topic_bytes_min=config.merge_topic_bytes_min,
    )


def key_limits(config: CompactorConfig) -> KeyLimits:
    """The limits of the planner of key compaction."""
    return KeyLimits(
        flushed_age_min_ms=config.keys_flushed_age_ms,
        dirty_bytes_min=config.keys_dirty_bytes_min,
        dirty_age_max_ms=config.keys_dirty_age_ms,
    )


def spark_settings(config: CompactorConfig) -> dict[str, str]:
    """Spark's own settings; `Invalid` unless they are key=value."""
    settings = {}
    for entry in filter(None, map(str.strip, config.spark_conf.split(CONF_SEPARATOR))):
        key, equals, value = entry.partition("=")
        if not equals or not key.startswith("spark."):
            raise Invalid(f"spark conf must be spark.key=value, separated by semicolons, not {entry!r}")
        settings[key.strip()] = value.strip()
    return settings
