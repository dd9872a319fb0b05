"""The compactor's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import ADVANCED, HostingConfig
from penstock_compactor.keys.plan import KeyLimits
from penstock_compactor.planning.planner import PlanLimits

MIB = 1024 * 1024
CONF_SEPARATOR = ";"


class CompactorConfig(HostingConfig, frozen=True, kw_only=True):
    """Settings of one compactor process."""

    spark_master: Annotated[
        str, Meta(description="address of the Spark cluster: local[N], spark://host:port, k8s://...")
    ] = "local[*]"
    spark_conf: Annotated[
        str,
        Meta(
            description="settings of Spark, spark.key=value, separated by semicolons; "
            "they have priority over those that Penstock sets"
        ),
    ] = ""
    spark_idle_s: Annotated[
        int, Meta(ge=1, description="a Spark session without work ends after this time, and its Java process with it")
    ] = 600
    jobs_max: Annotated[
        int, Meta(ge=1, le=64, description="jobs of all clusters of the process that run at the same time")
    ] = 2
    plan_interval_ms: Annotated[
        int, Meta(ge=10, description="time between two searches for merging jobs", extra=ADVANCED)
    ] = 5_000
    merge_flushed_count: Annotated[
        int, Meta(ge=2, description="flushed segments are merged when this many wait", extra=ADVANCED)
    ] = 32
    merge_flushed_bytes: Annotated[
        int, Meta(ge=1, description="flushed segments are also merged when they have this many bytes", extra=ADVANCED)
    ] = 256 * MIB
    merge_flushed_age_ms: Annotated[
        int,
        Meta(ge=0, description="two or more flushed segments are merged when the oldest is this old", extra=ADVANCED),
    ] = 120_000
    express_age_ms: Annotated[
        int, Meta(ge=0, description="segments leave the landing store at this age", extra=ADVANCED)
    ] = 20_000
    merge_local_bytes_max: Annotated[
        int,
        Meta(
            ge=0, description="a merge of at most this many bytes runs in this process, without Spark", extra=ADVANCED
        ),
    ] = 128 * MIB
    merge_class_count: Annotated[
        int, Meta(ge=2, description="merged segments of one size class are merged again at this count", extra=ADVANCED)
    ] = 16
    merge_class_age_ms: Annotated[
        int,
        Meta(
            ge=0, description="two or more segments of level 1 are merged when the oldest is this old", extra=ADVANCED
        ),
    ] = 3_600_000
    merge_topic_bytes_min: Annotated[
        int,
        Meta(
            ge=1,
            description="a topic with fewer bytes than this in a job shares a segment with other topics",
            extra=ADVANCED,
        ),
    ] = 4 * MIB
    keys_interval_ms: Annotated[
        int, Meta(ge=10, description="time between two searches for topics to compact by key", extra=ADVANCED)
    ] = 30_000
    keys_flushed_age_ms: Annotated[
        int,
        Meta(
            ge=0,
            description="key compaction also takes flushed segments that are this old and not merged",
            extra=ADVANCED,
        ),
    ] = 600_000
    keys_dirty_bytes_min: Annotated[
        int, Meta(ge=0, description="key compaction of a log waits for this many new bytes", extra=ADVANCED)
    ] = MIB
    keys_dirty_age_ms: Annotated[
        int, Meta(ge=0, description="key compaction of a log with new bytes waits no longer than this", extra=ADVANCED)
    ] = 300_000

    def __post_init__(self) -> None:
        super().__post_init__()
        spark_settings(self)


def plan_limits(config: CompactorConfig) -> PlanLimits:
    """The limits of the planner of merges."""
    return PlanLimits(
        flushed_count=config.merge_flushed_count,
        flushed_bytes=config.merge_flushed_bytes,
        flushed_age_ms=config.merge_flushed_age_ms,
        express_age_ms=config.express_age_ms,
        local_bytes_max=config.merge_local_bytes_max,
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
    """The Spark settings in the configuration; `Invalid` unless they are key=value."""
    settings = {}
    for entry in filter(None, map(str.strip, config.spark_conf.split(CONF_SEPARATOR))):
        key, equals, value = entry.partition("=")
        if not equals or not key.startswith("spark."):
            raise Invalid(f"spark conf must be spark.key=value, separated by semicolons: {entry!r}")
        settings[key.strip()] = value.strip()
    return settings
