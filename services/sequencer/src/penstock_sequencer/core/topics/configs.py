"""Configurations of topics and groups, and the cluster's defaults: a command changes all that it names, or nothing.

A new value takes effect later, step by step: retention reads the present value each time.

A command may be journaled long after its sender has sent it again elsewhere and changed the same value again. So the
sender must have seen the last change (`seen_sequence`), as with committed offsets.

For groups (Kafka's GROUP resource) that is the last change of any group. So the state keeps nothing for a group that
went back to its defaults. A group need not exist to have configurations.
"""

from collections import Counter
from collections.abc import Callable

from penstock.contracts.commands import (
    AlterClientMetrics,
    AlterConfigs,
    AlterGroupConfigs,
    ConfigChange,
    ConfigOperation,
    Done,
    Rejected,
)
from penstock.contracts.configs.brokers import is_of_broker, number_of_kept
from penstock.contracts.configs.groups import (
    GROUP_RESOURCE_CONFIGS,
    group_validation_errors,
)
from penstock.contracts.configs.topics import (
    TOPIC_CONFIGS,
    cluster_config,
    cluster_validation_errors,
    validation_errors,
)
from penstock.contracts.configs.values import TopicConfig
from penstock.contracts.levels import (
    level_of_changed_configs,
    level_of_cluster_configs,
    level_of_configs,
    level_of_group_configs,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State

_UNKNOWN_YET = Rejected(Rejection.INVALID_CONFIG, "some sequencers do not know these configurations yet")
_ON_LISTS = (ConfigOperation.APPEND, ConfigOperation.SUBTRACT)


def alter_configs(state: State, command: AlterConfigs, changes: Changes) -> Done | Rejected:
    """Change the configurations of the topic, or the cluster's defaults."""
    altered = _altered(state, command)
    if isinstance(altered, Rejected):
        return altered
    topic = state.topics.get(command.topic)
    if topic is None:
        state.cluster_configs, state.cluster_altered_sequence = altered, state.sequence
    else:
        topic.configs, topic.altered_sequence = altered, state.sequence
        changes.topics[topic.name] = None
    return Done()


def check_alter_configs(state: State, command: AlterConfigs) -> Done | Rejected:
    """The outcome that `alter_configs` would have."""
    altered = _altered(state, command)
    return altered if isinstance(altered, Rejected) else Done()


def level_validation_error(state: State, configs: dict[str, str]) -> Rejected | None:
    """The rejection of configurations that need a higher level.

    Replicas of earlier releases rejected them, and journals may hold such commands. So replays must reject them, too.
    """
    return None if state.level >= level_of_configs(configs) else _UNKNOWN_YET


def validation_error(reasons: list[str]) -> Rejected | None:
    """The rejection for these reasons; None if there are none."""
    return Rejected(Rejection.INVALID_CONFIG, "; ".join(reasons)) if reasons else None


def _altered(state: State, command: AlterConfigs) -> dict[str, str] | Rejected:
    """The values that are set after the command."""
    if not command.topic:
        after = _altered_of_cluster(state, command)
        return _unless_late(command, state.cluster_configs, after, state.cluster_altered_sequence)
    topic = state.topics.get(command.topic)
    if topic is None:
        return Rejected(Rejection.UNKNOWN_TOPIC, f"The topic '{command.topic[:256]}' does not exist.")
    after = changed(command, topic.configs, TOPIC_CONFIGS.get, validation_errors)
    if not isinstance(after, Rejected):
        is_known = state.level >= level_of_changed_configs(after, _names(command))
        after = after if is_known else _UNKNOWN_YET
    return _unless_late(command, topic.configs, after, topic.altered_sequence)


def _altered_of_cluster(state: State, command: AlterConfigs) -> dict[str, str] | Rejected:
    before = state.cluster_configs
    after = changed(command, before, cluster_config, cluster_validation_errors)
    if isinstance(after, Rejected):
        return after
    if state.level < level_of_cluster_configs(after, _names(command)):
        return _UNKNOWN_YET
    configs_max, number = state.limits.topics.broker_configs_max, number_of_kept(after)
    if number > configs_max and number > number_of_kept(before):
        return Rejected(Rejection.INVALID_REQUEST, f"single brokers have {configs_max} configurations: remove some")
    return after


def _names(command: AlterConfigs) -> list[str]:
    return [change.name for change in command.changes]


def _unless_late(
    command: AlterConfigs, before: dict[str, str], after: dict[str, str] | Rejected, altered_sequence: int
) -> dict[str, str] | Rejected:
    """Reject a command that comes too late; one that was sent again changes nothing, so it is never too late."""
    if isinstance(after, Rejected) or after == before or not 0 <= command.seen_sequence < altered_sequence:
        return after
    return Rejected(Rejection.STALE, "the configurations have been changed since")


def changed(
    command: AlterConfigs | AlterGroupConfigs | AlterClientMetrics,
    configs: dict[str, str],
    find: Callable[[str], TopicConfig | None],
    find_validation_errors: Callable[[dict[str, str]], list[str]],
) -> dict[str, str] | Rejected:
    """The values that are set after the command, for one kind of configurations."""
    twice = [name for name, count in Counter(change.name for change in command.changes).items() if count > 1]
    if twice:
        return Rejected(Rejection.INVALID_REQUEST, f"Error due to duplicate config keys: {','.join(twice)}")
    unknown = find_validation_errors({change.name: "" for change in command.changes if find(change.name) is None})
    if unknown:
        return Rejected(Rejection.INVALID_CONFIG, "; ".join(unknown))
    # The configurations of single brokers stay: clients that replace the cluster's do not mean those.
    after = {name: value for name, value in configs.items() if not command.replace or is_of_broker(name)}
    for change in command.changes:
        config = find(change.name)
        assert config is not None, "unknown names are rejected above"
        if change.operation in _ON_LISTS and config.kind != "LIST":
            message = f"Can't {change.operation.name} to key {change.name} because its type is not LIST."
            return Rejected(Rejection.INVALID_CONFIG, message)
        _change(after, change, config.default)
    return validation_error(find_validation_errors(after)) or after


def _change(configs: dict[str, str], change: ConfigChange, default: str) -> None:
    """Change one configuration; a change to a list starts from the present value or from the default, as in Kafka."""
    match change.operation:
        case ConfigOperation.SET:
            configs[change.name] = change.value
        case ConfigOperation.DELETE:
            configs.pop(change.name, None)
        case ConfigOperation.APPEND:
            items = _present(configs, change.name, default)
            configs[change.name] = ",".join(dict.fromkeys([*items, *_items(change.value)]))
        case ConfigOperation.SUBTRACT:
            removed = _items(change.value)
            items = _present(configs, change.name, default)
            configs[change.name] = ",".join(item for item in items if item not in removed)


def _present(configs: dict[str, str], name: str, default: str) -> list[str]:
    value = configs.get(name, default)
    return _items(value) if value else []


def _items(value: str) -> list[str]:
    return [item.strip(" ") for item in value.split(",")]


def alter_group_configs(state: State, command: AlterGroupConfigs, changes: Changes) -> Done | Rejected:
    """Change the configurations of the group."""
    altered = _altered_of_group(state, command)
    if isinstance(altered, Rejected):
        return altered
    if altered == state.group_configs.get(command.group_id, {}):
        return Done()
    if altered:
        state.group_configs[command.group_id] = altered
    else:
        del state.group_configs[command.group_id]
    state.group_configs_altered_sequence = state.sequence
    changes.groups[command.group_id] = None
    return Done()


def check_alter_group_configs(state: State, command: AlterGroupConfigs) -> Done | Rejected:
    """The outcome that `alter_group_configs` would have."""
    altered = _altered_of_group(state, command)
    return altered if isinstance(altered, Rejected) else Done()


def _altered_of_group(state: State, command: AlterGroupConfigs) -> dict[str, str] | Rejected:
    if not 0 < len(command.group_id) <= state.limits.groups.group_id_length_max:
        return Rejected(Rejection.INVALID_REQUEST, "Default group resources are not allowed.")
    before = state.group_configs.get(command.group_id, {})
    after = changed(command, before, GROUP_RESOURCE_CONFIGS.get, group_validation_errors)
    values = {} if isinstance(after, Rejected) else after
    if state.level < level_of_group_configs(values, (change.name for change in command.changes)):
        return _UNKNOWN_YET
    if isinstance(after, Rejected) or after == before:
        return after
    if 0 <= command.seen_sequence < state.group_configs_altered_sequence:
        return Rejected(Rejection.STALE, "configurations of groups have been changed since")
    groups_max = state.limits.topics.groups_with_configs_max
    if not before and len(state.group_configs) >= groups_max:
        return Rejected(Rejection.OVERLOADED, f"{groups_max} groups have configurations already")
    return after
