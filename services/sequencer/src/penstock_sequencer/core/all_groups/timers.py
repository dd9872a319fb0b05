"""What is due in groups by the machine's clock, and members that were silent for too long."""

from penstock.contracts.commands import Done, ExpireMember
from penstock_sequencer.core.groups import classic_group, consumer_group
from penstock_sequencer.core.groups.consumer_group import consumer_of, remove_member
from penstock_sequencer.core.groups.idle_timers import next_deadline_ms
from penstock_sequencer.core.groups.migration import downgrade_if_due
from penstock_sequencer.core.share import group as share_groups
from penstock_sequencer.core.state.cluster import Changes, Group, State


def fire_deadlines(state: State, changes: Changes) -> None:
    """Do what is due by the machine's clock. Every deadline that is set lies ahead, so this ends."""
    while (deadline_ms := next_deadline_ms(state)) is not None and deadline_ms <= state.clock_ms:
        group_id = state.alarms[0][1]
        if group_id in state.share_groups:
            share_groups.fire(state, state.share_groups[group_id], changes)
            continue
        group = state.groups[group_id]
        if group.consumer is None:
            classic_group.fire(state, group)
            classic_group.settle(state, group, changes)
        else:
            _drop_overdue(state, group, changes)


def _drop_overdue(state: State, group: Group, changes: Changes) -> None:
    """Members that have not done in time what was awaited of them are out."""
    members = list(consumer_of(group).members.values())
    _remove(state, group, [member.member_id for member in members if 0 < member.due_ms <= state.clock_ms], changes)


def expire(state: State, group: Group, command: ExpireMember, changes: Changes) -> Done:
    """A silent member of a consumer group goes, unless the journal shows that it was not silent."""
    member = consumer_of(group).members.get(command.member_id)
    if member is not None and member.active_sequence <= command.active_sequence:
        _remove(state, group, [member.member_id], changes)
    return Done()


def _remove(state: State, group: Group, member_ids: list[str], changes: Changes) -> None:
    consumer = consumer_of(group)
    for member_id in member_ids:
        remove_member(state, group, consumer.members[member_id])
    downgrade_if_due(state, group, changes)
    if group.consumer is not None:
        consumer_group.settle(state, group, changes)
