"""Configurations that groups have for themselves (Kafka's GROUP resource); a group need not exist to have some.

As with topics' configurations, whoever changes what is there must have known of it (`seen_sequence`): of any group, so
that nothing is to be remembered of those whose configurations went back to their defaults.
"""

from penstock.contracts.commands import AlterGroupConfigs, Done, Rejected
from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS, group_validation_errors
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.topics.configs import changed


def alter_group_configs(state: State, command: AlterGroupConfigs, changes: Changes) -> Done | Rejected:
    """The group's configurations are from now on these."""
    altered = _altered(state, command)
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
    """What `alter_group_configs` would answer."""
    altered = _altered(state, command)
    return altered if isinstance(altered, Rejected) else Done()


def _altered(state: State, command: AlterGroupConfigs) -> dict[str, str] | Rejected:
    if not 0 < len(command.group_id) <= state.limits.groups.group_id_length_max:
        return Rejected(Rejection.INVALID_REQUEST, "Default group resources are not allowed.")
    before = state.group_configs.get(command.group_id, {})
    after = changed(command, before, GROUP_RESOURCE_CONFIGS, group_validation_errors)
    if isinstance(after, Rejected) or after == before:
        return after
    if 0 <= command.seen_sequence < state.group_configs_altered_sequence:
        return Rejected(Rejection.STALE, "configurations of groups have been changed since")
    groups_max = state.limits.topics.groups_with_configs_max
    if not before and len(state.group_configs) >= groups_max:
        return Rejected(Rejection.OVERLOADED, f"{groups_max} groups have configurations already")
    return after
