"""Supported topic configurations with their defaults and accepted values; all others are rejected by name.

Some have a cluster default, under the name of Kafka's broker configuration. The value in force for a topic is the
topic's own, else the cluster's, else the default of this module.
"""

from collections.abc import Callable, Iterable

import msgspec

from penstock.contracts.configs.brokers import config_of_kept, is_of_broker
from penstock.contracts.configs.members import (
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    GROUP_CONFIGS,
    SESSION_TIMEOUT_MAX,
    SESSION_TIMEOUT_MIN,
    group_config,
)
from penstock.contracts.configs.replicas import REPLICAS, replicas_validation_error
from penstock.contracts.configs.share_groups import DEAD_LETTER_CLUSTER_CONFIGS, SHARED_TOPIC_CONFIGS
from penstock.contracts.configs.unsupported_topics import (
    COMPRESSION_TYPE,
    INERT_CONFIGS,
    LATER_INERT_CONFIGS,
    REJECTED_CONFIGS,
    config_of,
)
from penstock.contracts.configs.values import LONG_MAX, TopicConfig, only, ratio, whole_number

MESSAGE_BYTES_DEFAULT = 1_048_588  # Kafka's own default: 1 MiB and a batch's overhead
MESSAGE_BYTES_CEILING = 8_000_000  # a batch must fit into one message of 8 MiB
DAY_MS = 86_400_000
RETENTION_MS_DEFAULT = 7 * DAY_MS  # Kafka's log.retention.hours=168
FOR_EVER = -1  # as a retention, in milliseconds or bytes

COMPACT = "compact"
DELETE = "delete"
CLEANUP_POLICY = "cleanup.policy"
MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_COMPACTION_LAG = "max.compaction.lag.ms"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
TIMESTAMP_TYPE = "message.timestamp.type"
TIMESTAMP_BEFORE_MAX = "message.timestamp.before.max.ms"
TIMESTAMP_AFTER_MAX = "message.timestamp.after.max.ms"
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
UNDELETE_WINDOW = "penstock.undelete.window.ms"
CHECK_RECORDS = "penstock.check.records"
LANE = "penstock.lane"
STANDARD, EXPRESS = "standard", "express"


def _policies(value: str) -> str:
    found = _items(value)
    is_good = len(found) == len(set(found)) and {*found} <= {COMPACT, DELETE}
    return "" if is_good or not value else f"must be {DELETE}, {COMPACT}, both with a comma between, or empty"


def _items(value: str) -> list[str]:
    return [item.strip(" ") for item in value.split(",")]


TOPIC_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            CLEANUP_POLICY,
            "LIST",
            DELETE,
            "The policy for old records: delete by age and size, compact to the last record of each key, or both.",
            _policies,
        ),
        TopicConfig(
            "delete.retention.ms",
            "LONG",
            str(DAY_MS),
            "Milliseconds that key compaction keeps a tombstone after it first found it.",
            whole_number(0, LONG_MAX),
        ),
        TopicConfig(
            MAX_COMPACTION_LAG,
            "LONG",
            str(LONG_MAX),
            "Milliseconds after which a record is compacted, even if little space is saved.",
            whole_number(1, LONG_MAX),
        ),
        TopicConfig(
            "max.message.bytes",
            "INT",
            str(MESSAGE_BYTES_DEFAULT),
            "The largest record batch accepted, in bytes.",
            whole_number(61, MESSAGE_BYTES_CEILING),
        ),
        TopicConfig(
            TIMESTAMP_TYPE,
            "STRING",
            CREATE_TIME,
            "The clock of a record's timestamp: the producer's or, with LogAppendTime, the broker's.",
            only(CREATE_TIME, LOG_APPEND_TIME),
        ),
        TopicConfig(
            TIMESTAMP_BEFORE_MAX,
            "LONG",
            str(LONG_MAX),
            "Milliseconds that a record's timestamp may be before the broker's clock.",
            whole_number(0, LONG_MAX),
        ),
        TopicConfig(
            TIMESTAMP_AFTER_MAX,
            "LONG",
            str(LONG_MAX),
            "Milliseconds that a record's timestamp may be after the broker's clock.",
            whole_number(0, LONG_MAX),
        ),
        TopicConfig(
            "min.cleanable.dirty.ratio",
            "DOUBLE",
            "0.5",
            "The part of a log that must be new since the last key compaction before there is another one.",
            ratio,
        ),
        TopicConfig(
            MIN_COMPACTION_LAG,
            "LONG",
            "0",
            "Milliseconds during which key compaction leaves a record alone.",
            whole_number(0, LONG_MAX),
        ),
        TopicConfig(
            RETENTION_BYTES,
            "LONG",
            str(FOR_EVER),
            "Bytes kept per partition; -1 keeps all.",
            whole_number(FOR_EVER, LONG_MAX),
            "log.retention.bytes",
        ),
        TopicConfig(
            RETENTION_MS,
            "LONG",
            str(RETENTION_MS_DEFAULT),
            "Milliseconds a record is kept; -1 keeps it for ever.",
            whole_number(FOR_EVER, LONG_MAX),
            "log.retention.ms",
        ),
        TopicConfig(
            UNDELETE_WINDOW,
            "LONG",
            "0",
            "Milliseconds for which a deleted topic can be restored; 0 deletes it for good.",
            whole_number(0, LONG_MAX),
            UNDELETE_WINDOW,
        ),
        TopicConfig(
            CHECK_RECORDS,
            "BOOLEAN",
            "true",
            "Whether the gateway checks the framing of each record before it accepts a batch, as Kafka does.",
            only("true", "false"),
        ),
        TopicConfig(
            LANE,
            "STRING",
            STANDARD,
            "The way of new records into the store: with express, through the landing store, in milliseconds. The "
            "loss of that store loses those of the last minute. Without a landing store it has no effect.",
            only(STANDARD, EXPRESS),
        ),
        TopicConfig(
            REPLICAS,
            "STRING",
            "",
            "The brokers that clients assigned to each partition, as they are described; without another effect.",
            replicas_validation_error,
        ),
    )
}


TOPIC_CONFIGS |= {inert.name: config_of(inert) for inert in INERT_CONFIGS.values()} | SHARED_TOPIC_CONFIGS

CLUSTER_CONFIGS: dict[str, TopicConfig] = {
    config.cluster_name: config for config in TOPIC_CONFIGS.values() if config.cluster_name
}
CLUSTER_CONFIGS |= GROUP_CONFIGS | DEAD_LETTER_CLUSTER_CONFIGS

CLUSTER_NAMES = {config.name: name for name, config in CLUSTER_CONFIGS.items()}

# Cluster defaults that came with them.
CODEC_CLUSTER_NAMES = frozenset(inert.cluster_name for inert in LATER_INERT_CONFIGS.values() if inert.cluster_name)

# Names that releases before key compaction accepted. Other names must not reach a journal that such a release reads.
_FIRST_NAMES = (COMPRESSION_TYPE, "max.message.bytes", TIMESTAMP_TYPE, RETENTION_BYTES, RETENTION_MS)
# The only values that releases before retention accepted, and the names that they did not know.
_ONLY_VALUES = {RETENTION_BYTES: str(FOR_EVER), RETENTION_MS: str(FOR_EVER), TIMESTAMP_TYPE: CREATE_TIME}
_NAMES_SINCE_RETENTION = (UNDELETE_WINDOW, TIMESTAMP_BEFORE_MAX, TIMESTAMP_AFTER_MAX)


class CompactionConfigs(msgspec.Struct, frozen=True):
    """The configurations of key compaction for one topic."""

    min_lag_ms: int
    max_lag_ms: int
    dirty_ratio_min: float
    delete_retention_ms: int


class RetentionConfigs(msgspec.Struct, frozen=True):
    """The limits of a topic's logs; FOR_EVER means no limit."""

    retention_ms: int
    retention_bytes: int


def validation_errors(configs: dict[str, str]) -> list[str]:
    """The reasons why these configurations cannot be set, one sentence each; empty if they can."""
    found = _validation_errors(configs, TOPIC_CONFIGS.get, "topic")
    if not found and int(_value(configs, MIN_COMPACTION_LAG)) > int(_value(configs, MAX_COMPACTION_LAG)):
        found.append(f"{MIN_COMPACTION_LAG} must not be larger than {MAX_COMPACTION_LAG}")
    return found


def cluster_config(name: str) -> TopicConfig | None:
    """The cluster's configuration with this name, also one of a single broker; None if there is no such one."""
    return config_of_kept(name) if is_of_broker(name) else CLUSTER_CONFIGS.get(name)


def cluster_validation_errors(configs: dict[str, str]) -> list[str]:
    """The reasons why these cannot be the cluster's configurations, one sentence each; `configs` has broker names."""
    found = _validation_errors(configs, cluster_config, "cluster")
    if not found and group_config(SESSION_TIMEOUT_MIN, configs) > group_config(SESSION_TIMEOUT_MAX, configs):
        found.append(f"{SESSION_TIMEOUT_MIN} must not be larger than {SESSION_TIMEOUT_MAX}")
    if not found and group_config(CONSUMER_HEARTBEAT_INTERVAL, configs) >= group_config(
        CONSUMER_SESSION_TIMEOUT, configs
    ):
        found.append(f"{CONSUMER_HEARTBEAT_INTERVAL} must be smaller than {CONSUMER_SESSION_TIMEOUT}")
    return found


def _validation_errors(configs: dict[str, str], find: Callable[[str], TopicConfig | None], whose: str) -> list[str]:
    found = []
    for name, value in configs.items():
        config = find(name)
        if config is None:
            why = f": {REJECTED_CONFIGS[name]}" if name in REJECTED_CONFIGS else ""
            found.append(f"{name} is not a supported {whose} configuration{why}")
        elif reason := config.validation_error(value):
            found.append(f"{name} {reason}: {value!r}")
    return found


def need_inert_configs(configs: dict[str, str]) -> bool:
    """Whether a release must know configurations without effect to accept these."""
    return any(name in INERT_CONFIGS and name not in LATER_INERT_CONFIGS for name in configs)


def need_kafka_values(configs: dict[str, str]) -> bool:
    """Whether a release must know all codecs, configurations of tiers and throttles, and a policy without an item."""
    return any(
        (name in LATER_INERT_CONFIGS and (name, value) != (COMPRESSION_TYPE, "producer"))
        or (name == CLEANUP_POLICY and not value)
        for name, value in configs.items()
    )


def need_kafka_names(names: Iterable[str]) -> bool:
    """Whether a release must know codec levels and configurations of tiers and throttles to accept these names."""
    return any(name in LATER_INERT_CONFIGS and name != COMPRESSION_TYPE for name in names)


def need_key_compaction(configs: dict[str, str]) -> bool:
    """Whether a release must have key compaction to accept these configurations."""
    return any(
        value != DELETE if name == CLEANUP_POLICY else name not in _FIRST_NAMES for name, value in configs.items()
    )


def need_retention(configs: dict[str, str]) -> bool:
    """Whether a release must have retention to accept these configurations."""
    return any(
        name in _NAMES_SINCE_RETENTION or value != _ONLY_VALUES.get(name, value) for name, value in configs.items()
    )


def is_express(configs: dict[str, str]) -> bool:
    """Whether the topic's new records go through the express lane."""
    return configs.get(LANE) == EXPRESS


def message_bytes_max(configs: dict[str, str]) -> int:
    """The largest record batch that a topic with these configurations accepts, in bytes."""
    return int(configs.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))


def is_compacted(configs: dict[str, str]) -> bool:
    """Whether key compaction keeps only the last record of each key."""
    return COMPACT in _items(configs.get(CLEANUP_POLICY, DELETE))


def compaction_configs(configs: dict[str, str]) -> CompactionConfigs:
    """The configurations of key compaction for a topic with these configurations."""
    return CompactionConfigs(
        min_lag_ms=int(_value(configs, MIN_COMPACTION_LAG)),
        max_lag_ms=int(_value(configs, MAX_COMPACTION_LAG)),
        dirty_ratio_min=float(_value(configs, "min.cleanable.dirty.ratio")),
        delete_retention_ms=int(_value(configs, "delete.retention.ms")),
    )


def is_deleted_with_age(configs: dict[str, str]) -> bool:
    """Whether retention removes old records; a topic that is only compacted keeps each key's last record for ever."""
    return DELETE in _items(configs.get(CLEANUP_POLICY, DELETE))


def retention_configs(configs: dict[str, str], cluster_configs: dict[str, str]) -> RetentionConfigs:
    """The retention of a topic with these configurations."""
    if not is_deleted_with_age(configs):
        return RetentionConfigs(FOR_EVER, FOR_EVER)
    return RetentionConfigs(
        int(value_in_force(RETENTION_MS, configs, cluster_configs)),
        int(value_in_force(RETENTION_BYTES, configs, cluster_configs)),
    )


def undelete_window_ms(configs: dict[str, str], cluster_configs: dict[str, str]) -> int:
    """The undelete window of a topic with these configurations."""
    return int(value_in_force(UNDELETE_WINDOW, configs, cluster_configs))


def is_append_time(configs: dict[str, str]) -> bool:
    """Whether records get the time at which the broker received them."""
    return configs.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME


def timestamp_limits_ms(configs: dict[str, str]) -> tuple[int, int]:
    """The limits for a record's timestamp: how far it may be before, and after, the broker's clock."""
    return int(_value(configs, TIMESTAMP_BEFORE_MAX)), int(_value(configs, TIMESTAMP_AFTER_MAX))


def value_in_force(name: str, configs: dict[str, str], cluster_configs: dict[str, str]) -> str:
    """The topic's own value, else the cluster's, else the default."""
    config = TOPIC_CONFIGS[name]
    return configs.get(name, cluster_configs.get(config.cluster_name, config.default))


def _value(configs: dict[str, str], name: str) -> str:
    return configs.get(name, TOPIC_CONFIGS[name].default)
