"""The cluster's configurations of groups and their members, under the names of Kafka's broker configurations."""

from collections.abc import Iterable

from penstock.contracts.configs.values import INT_MAX, TopicConfig, whole_number

OFFSETS_RETENTION = "offsets.retention.minutes"
INITIAL_REBALANCE_DELAY = "group.initial.rebalance.delay.ms"
GROUP_SIZE_MAX = "group.max.size"
SESSION_TIMEOUT_MIN = "group.min.session.timeout.ms"
SESSION_TIMEOUT_MAX = "group.max.session.timeout.ms"
CONSUMER_SESSION_TIMEOUT = "group.consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL = "group.consumer.heartbeat.interval.ms"
CONSUMER_ASSIGNMENT_INTERVAL = "group.consumer.assignment.interval.ms"  # KIP-1263
CLUSTER_STREAMS_SESSION_TIMEOUT = "group.streams.session.timeout.ms"
CLUSTER_STREAMS_HEARTBEAT_INTERVAL = "group.streams.heartbeat.interval.ms"
CLUSTER_STREAMS_STANDBY_REPLICAS = "group.streams.num.standby.replicas"
CLUSTER_STREAMS_INITIAL_DELAY = "group.streams.initial.rebalance.delay.ms"
CLUSTER_STREAMS_ASSIGNMENT_INTERVAL = "group.streams.assignment.interval.ms"
STREAMS_GROUP_CONFIGS = (
    CLUSTER_STREAMS_SESSION_TIMEOUT,
    CLUSTER_STREAMS_HEARTBEAT_INTERVAL,
    CLUSTER_STREAMS_STANDBY_REPLICAS,
    CLUSTER_STREAMS_INITIAL_DELAY,
    CLUSTER_STREAMS_ASSIGNMENT_INTERVAL,
)
STANDBY_REPLICAS_CEILING = 2  # Kafka's group.streams.max.standby.replicas
INITIAL_DELAY_CEILING_MS = 300_000
GROUP_SIZE_CEILING = 2_000  # a leader gets every member's metadata in one answer
SESSION_TIMEOUT_CEILING_MS = 1_800_000  # Kafka's group.max.session.timeout.ms
ASSIGNMENT_INTERVAL_CEILING_MS = 15_000  # Kafka's group.consumer.max.assignment.interval.ms

# Configurations of groups have no topic's value, only the cluster's, under the name of Kafka's broker configuration.
GROUP_CONFIGS: dict[str, TopicConfig] = {
    name: TopicConfig(name, kind, default, documentation, validation_error, name)
    for name, kind, default, documentation, validation_error in (
        (
            OFFSETS_RETENTION,
            "INT",
            "10080",
            "Minutes that offsets are kept after a group's last member left or, without members, after the commit.",
            whole_number(1, INT_MAX),
        ),
        (
            INITIAL_REBALANCE_DELAY,
            "INT",
            "500",
            "Milliseconds for which an empty group waits for more members after the first one.",
            whole_number(0, SESSION_TIMEOUT_CEILING_MS),
        ),
        (
            GROUP_SIZE_MAX,
            "INT",
            str(GROUP_SIZE_CEILING),
            "The largest number of members of a classic group.",
            whole_number(1, GROUP_SIZE_CEILING),
        ),
        (
            SESSION_TIMEOUT_MIN,
            "INT",
            "6000",
            "The shortest session time-out that a member may ask for, in milliseconds.",
            whole_number(1_000, SESSION_TIMEOUT_CEILING_MS),
        ),
        (
            SESSION_TIMEOUT_MAX,
            "INT",
            str(SESSION_TIMEOUT_CEILING_MS),
            "The longest session time-out that a member may ask for, in milliseconds.",
            whole_number(1_000, SESSION_TIMEOUT_CEILING_MS),
        ),
        (
            CONSUMER_SESSION_TIMEOUT,
            "INT",
            "45000",
            "Milliseconds for which a member of a consumer group may be silent.",
            whole_number(1_000, SESSION_TIMEOUT_CEILING_MS),
        ),
        (
            CONSUMER_HEARTBEAT_INTERVAL,
            "INT",
            "5000",
            "Milliseconds between the heartbeats of a member of a consumer group.",
            whole_number(100, SESSION_TIMEOUT_CEILING_MS),
        ),
        (
            CONSUMER_ASSIGNMENT_INTERVAL,
            "INT",
            "1000",
            "The shortest time between two assignments of a consumer group, in milliseconds.",
            whole_number(0, ASSIGNMENT_INTERVAL_CEILING_MS),
        ),
        (
            CLUSTER_STREAMS_SESSION_TIMEOUT,
            "INT",
            "45000",
            "Milliseconds for which a member of a streams group may be silent.",
            whole_number(1_000, SESSION_TIMEOUT_CEILING_MS),
        ),
        (
            CLUSTER_STREAMS_HEARTBEAT_INTERVAL,
            "INT",
            "5000",
            "Milliseconds between the heartbeats of a member of a streams group.",
            whole_number(100, SESSION_TIMEOUT_CEILING_MS),
        ),
        (
            CLUSTER_STREAMS_STANDBY_REPLICAS,
            "INT",
            "0",
            "The number of standby tasks for each task with state of a streams group.",
            whole_number(0, STANDBY_REPLICAS_CEILING),
        ),
        (
            CLUSTER_STREAMS_INITIAL_DELAY,
            "INT",
            "3000",
            "Milliseconds for which an empty streams group waits for more members after the first one.",
            whole_number(0, INITIAL_DELAY_CEILING_MS),
        ),
        (
            CLUSTER_STREAMS_ASSIGNMENT_INTERVAL,
            "INT",
            "1000",
            "The shortest time between two assignments of a streams group, in milliseconds.",
            whole_number(0, ASSIGNMENT_INTERVAL_CEILING_MS),
        ),
    )
}


def need_group_configs(names: Iterable[str]) -> bool:
    """Whether a release must have configurations of groups to accept these names as the cluster's."""
    return any(name in GROUP_CONFIGS for name in names)


def group_config(name: str, cluster_configs: dict[str, str]) -> int:
    """The value in force of one of GROUP_CONFIGS."""
    return int(cluster_configs.get(name, GROUP_CONFIGS[name].default))


def offsets_retention_ms(cluster_configs: dict[str, str]) -> int:
    """The time for which unused offsets are kept."""
    return group_config(OFFSETS_RETENTION, cluster_configs) * 60_000
