"""Configurations of a single group (Kafka's GROUP resource): consumer (KIP-848), share (KIP-932), streams (KIP-1071).

The value in force for a consumer or streams group is its own, else the cluster's, else the default.
"""

from collections.abc import Iterable

from penstock.contracts.configs.durations import parse_duration_ms
from penstock.contracts.configs.members import (
    ASSIGNMENT_INTERVAL_CEILING_MS,
    CLUSTER_STREAMS_ASSIGNMENT_INTERVAL,
    CLUSTER_STREAMS_HEARTBEAT_INTERVAL,
    CLUSTER_STREAMS_INITIAL_DELAY,
    CLUSTER_STREAMS_SESSION_TIMEOUT,
    CLUSTER_STREAMS_STANDBY_REPLICAS,
    CONSUMER_ASSIGNMENT_INTERVAL,
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    GROUP_CONFIGS,
    group_config,
)
from penstock.contracts.configs.share_groups import LATER_SHARE_CONFIGS
from penstock.contracts.configs.values import TopicConfig, only, whole_number

READ_COMMITTED = "read_committed"
EARLIEST_RESET = "earliest"
LATEST_RESET = "latest"
DURATION_RESET = "by_duration:"  # and a duration of ISO 8601, from level 15 on (ADR 0070)
SHARE_AUTO_OFFSET_RESET = "share.auto.offset.reset"
SHARE_ISOLATION_LEVEL = "share.isolation.level"
SHARE_LOCK_DURATION = "share.record.lock.duration.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"  # KIP-1263
SHARE_DELIVERY_LIMIT = "share.delivery.count.limit"
SHARE_LOCKS_MAX = "share.partition.max.record.locks"
STREAMS_SESSION_TIMEOUT = "streams.session.timeout.ms"
STREAMS_HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
STREAMS_STANDBY_REPLICAS = "streams.num.standby.replicas"
STREAMS_INITIAL_DELAY = "streams.initial.rebalance.delay.ms"
STREAMS_ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"
_STREAMS_DEFAULTS = {  # the cluster's configurations that are their defaults
    STREAMS_SESSION_TIMEOUT: CLUSTER_STREAMS_SESSION_TIMEOUT,
    STREAMS_HEARTBEAT_INTERVAL: CLUSTER_STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_STANDBY_REPLICAS: CLUSTER_STREAMS_STANDBY_REPLICAS,
    STREAMS_INITIAL_DELAY: CLUSTER_STREAMS_INITIAL_DELAY,
    STREAMS_ASSIGNMENT_INTERVAL: CLUSTER_STREAMS_ASSIGNMENT_INTERVAL,
}

_ASSIGNORS_RUN = "Accepted, and without effect. The state machine makes assignments, and no thread waits for them."
GROUP_OF_CLUSTER = {
    CONSUMER_SESSION_TIMEOUT: "consumer.session.timeout.ms",
    CONSUMER_HEARTBEAT_INTERVAL: "consumer.heartbeat.interval.ms",
    CONSUMER_ASSIGNMENT_INTERVAL: "consumer.assignment.interval.ms",
}


def _reset(value: str) -> str:
    duration_ms = reset_duration_ms(value)
    if value in (LATEST_RESET, EARLIEST_RESET) or (duration_ms is not None and duration_ms >= 0):
        return ""
    return (
        f"must be {LATEST_RESET}, {EARLIEST_RESET}, or {DURATION_RESET} and a duration such as PT1H or P2D, not below 0"
    )


def reset_duration_ms(value: str) -> int | None:
    """The duration in a value of `share.auto.offset.reset`, in ms; None if there is none."""
    return parse_duration_ms(value.removeprefix(DURATION_RESET)) if value.startswith(DURATION_RESET) else None


_SHARE_CONFIGS: dict[str, TopicConfig] = {
    name: TopicConfig(name, kind, default, documentation, validation_error)
    for name, kind, default, documentation, validation_error in (
        (
            SHARE_AUTO_OFFSET_RESET,
            "STRING",
            LATEST_RESET,
            "The start of a share group in a partition that it has not read yet; with by_duration:PT1H, an hour ago.",
            _reset,
        ),
        (
            SHARE_ISOLATION_LEVEL,
            "STRING",
            "read_uncommitted",
            "Whether a share group gets records of transactions that are not committed.",
            only("read_uncommitted", READ_COMMITTED),
        ),
        (
            SHARE_LOCK_DURATION,
            "INT",
            "30000",
            "Milliseconds for which a member of a share group has the lock on a record.",
            whole_number(1_000, 3_600_000),
        ),
        (
            SHARE_SESSION_TIMEOUT,
            "INT",
            "45000",
            "Milliseconds for which a member of a share group may be silent.",
            whole_number(1_000, 1_800_000),
        ),
        (
            SHARE_HEARTBEAT_INTERVAL,
            "INT",
            "5000",
            "Milliseconds between the heartbeats of a member of a share group.",
            whole_number(100, 1_800_000),
        ),
        (
            SHARE_ASSIGNMENT_INTERVAL,
            "INT",
            "1000",
            "Milliseconds between two assignments of a share group's partitions, more for very large groups.",
            whole_number(0, ASSIGNMENT_INTERVAL_CEILING_MS),
        ),
        (
            SHARE_DELIVERY_LIMIT,
            "INT",
            "5",
            "The largest number of deliveries of a record to a share group; after them the record is done.",
            whole_number(2, 10),
        ),
        (
            SHARE_LOCKS_MAX,
            "INT",
            "2000",
            "Records of a partition that a share group may have in flight.",
            whole_number(100, 10_000),
        ),
    )
}


# Those that releases before KAFKA_VALUES_LEVEL reject. The bounds are those of the cluster's values.
_LATER_CONFIGS: dict[str, TopicConfig] = {
    name: TopicConfig(name, known.kind, known.default, known.documentation, known.validation_error, known.name)
    for known, name in ((GROUP_CONFIGS[cluster_name], name) for cluster_name, name in GROUP_OF_CLUSTER.items())
} | {
    name: TopicConfig(name, "BOOLEAN", "true", _ASSIGNORS_RUN, only("true", "false"))
    for name in ("consumer.assignor.offload.enable", "share.assignor.offload.enable")
}

# Those of streams groups (KIP-1071), which releases before STREAMS_GROUPS_LEVEL reject.
STREAMS_CONFIGS: dict[str, TopicConfig] = {
    name: TopicConfig(name, known.kind, known.default, known.documentation, known.validation_error, known.name)
    for known, name in ((GROUP_CONFIGS[cluster_name], name) for name, cluster_name in _STREAMS_DEFAULTS.items())
}

GROUP_RESOURCE_CONFIGS = _SHARE_CONFIGS | _LATER_CONFIGS | STREAMS_CONFIGS | LATER_SHARE_CONFIGS


# The first of each must be smaller than the second.
_ORDERED = (
    (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT),
    (GROUP_OF_CLUSTER[CONSUMER_HEARTBEAT_INTERVAL], GROUP_OF_CLUSTER[CONSUMER_SESSION_TIMEOUT]),
    (STREAMS_HEARTBEAT_INTERVAL, STREAMS_SESSION_TIMEOUT),
)


def need_later_group_configs(names: Iterable[str]) -> bool:
    """Whether a release must know configurations of consumer groups to accept these names."""
    return any(name in _LATER_CONFIGS for name in names)


def begins_by_time(configs: dict[str, str]) -> bool:
    """Whether a share group with these configurations begins at a time, so that a release must know `by_duration`."""
    return configs.get(SHARE_AUTO_OFFSET_RESET, "").startswith(DURATION_RESET)


def group_validation_errors(configs: dict[str, str]) -> list[str]:
    """The reasons why a group cannot have these configurations, one sentence each."""
    found = []
    for name, value in configs.items():
        config = GROUP_RESOURCE_CONFIGS.get(name)
        if config is None:
            found.append(f"{name} is not a supported group configuration")
        elif reason := config.validation_error(value):
            found.append(f"{name} {reason}: {value!r}")
    if not found:
        found += [
            f"{interval} must be smaller than {timeout}"
            for interval, timeout in _ORDERED
            if _number(configs, interval) >= _number(configs, timeout)
        ]
    return found


def consumer_config(cluster_name: str, configs: dict[str, str], cluster_configs: dict[str, str]) -> int:
    """The value in force for a consumer group; `cluster_name` is the cluster's name of one in GROUP_OF_CLUSTER."""
    own = configs.get(GROUP_OF_CLUSTER[cluster_name])
    return group_config(cluster_name, cluster_configs) if own is None else int(own)


def streams_config(name: str, configs: dict[str, str], cluster_configs: dict[str, str]) -> int:
    """The value in force of one of STREAMS_CONFIGS: the group's own, or the cluster's."""
    return int(configs[name]) if name in configs else group_config(_STREAMS_DEFAULTS[name], cluster_configs)


def share_config(name: str, configs: dict[str, str]) -> str:
    """The value in force of one of GROUP_RESOURCE_CONFIGS for a group with these configurations."""
    return configs.get(name, GROUP_RESOURCE_CONFIGS[name].default)


def _number(configs: dict[str, str], name: str) -> int:
    return int(share_config(name, configs))
