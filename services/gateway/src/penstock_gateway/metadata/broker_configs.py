"""Configurations of one broker: which ones may change, and how they change the cluster's (ADR 0069)."""

from collections.abc import Sequence

from penstock.contracts.commands import ConfigChange, ConfigOperation
from penstock.contracts.configs.brokers import BROKER_CONFIGS, configs_of_broker, kept_name
from penstock.contracts.configs.topics import CLUSTER_CONFIGS
from penstock.contracts.levels import BROKER_CONFIGS_LEVEL
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.feature_levels import NO_BROKER_CONFIGS
from penstock_gateway.metadata.admin_commands import AdminResult


def broker_validation_error(changes: Sequence[ConfigChange], level: int | None) -> AdminResult:
    """Kafka's error for configurations that a broker of a cluster at this level cannot have.

    As in Kafka, any name can be removed.
    """
    names = [change.name for change in changes if change.operation != ConfigOperation.DELETE]
    clusters = [name for name in names if name in CLUSTER_CONFIGS]
    if clusters:
        reason = f"set these configurations for all brokers, with an empty name: {', '.join(clusters)}"
        return ErrorCode.INVALID_REQUEST, reason
    fixed = [name for name in names if name not in BROKER_CONFIGS]
    if fixed:
        return ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
    for change in changes:
        reason = BROKER_CONFIGS[change.name].validation_error(change.value) if _is_set(change) else ""
        if reason:
            return ErrorCode.INVALID_REQUEST, f"{change.name} {reason}: {change.value!r}"
    if names and level is not None and level < BROKER_CONFIGS_LEVEL:  # no sequencer journals it during an upgrade
        return ErrorCode.UNSUPPORTED_VERSION, NO_BROKER_CONFIGS
    return ErrorCode.NONE, None


def kept_changes(
    broker_id: int, changes: Sequence[ConfigChange], cluster: dict[str, str] | None, level: int | None
) -> list[ConfigChange]:
    """The changes of the cluster's configurations that make these changes of a broker's.

    `cluster` has the cluster's configurations if those that are not named go back to their defaults.
    """
    if level is not None and level < BROKER_CONFIGS_LEVEL:  # brokers have none, so there is nothing to remove
        return []
    named = {change.name for change in changes}
    others = configs_of_broker(broker_id, cluster or {}).keys() - named
    removed = [ConfigChange(name, ConfigOperation.DELETE) for name in sorted(others)]
    return [
        ConfigChange(kept_name(broker_id, change.name), change.operation, change.value)
        for change in [*changes, *removed]
        if change.name in BROKER_CONFIGS
    ]


def _is_set(change: ConfigChange) -> bool:
    return change.operation == ConfigOperation.SET
