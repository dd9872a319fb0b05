"""Checks of the invariants in `state/streams_group.py`, after each entry of a `World`."""

from penstock_sequencer.core.groups.streams.group import NOT_READY
from penstock_sequencer.core.groups.streams.topology import configure
from penstock_sequencer.core.state.cluster import EMPTY, Group, State
from penstock_sequencer.core.state.consumer_group import ASSIGNING, AWAY, RECONCILED, REVOKING
from penstock_sequencer.core.state.group_sizes import topology_bytes
from penstock_sequencer.core.state.streams_group import StreamsGroup, StreamsMember


def check_streams_group(state: State, group: Group, streams: StreamsGroup) -> None:
    """Each active task has one owner and is in one target; each standby task has one owner in each process."""
    assert group.consumer is None
    assert not (group.members or group.pending or group.static_members or group.join_deadline_ms)
    assert group.generation == streams.epoch >= streams.assignment_epoch
    active: dict[str, dict[int, str]] = {}
    standby: dict[str, dict[int, dict[str, str]]] = {}
    wanted: dict[tuple[str, int], str] = {}
    for member_id, member in streams.members.items():
        assert member.member_id == member_id
        check_streams_member(streams, member)
        for epochs in (member.active, member.revoking_active):
            for subtopology, numbers in epochs.items():
                for number in numbers:
                    assert number not in active.setdefault(subtopology, {}), "an active task has one owner"
                    active[subtopology][number] = member_id
        for tasks in (member.standby, member.revoking_standby):
            for subtopology, listed in tasks.items():
                for number in listed:
                    owners = standby.setdefault(subtopology, {}).setdefault(number, {})
                    assert member.process_id not in owners, "a process has a standby task once"
                    owners[member.process_id] = member_id
        for subtopology, listed in member.target_active.items():
            assert not [number for number in listed if (subtopology, number) in wanted], "a task is in one target"
            wanted |= dict.fromkeys(((subtopology, number) for number in listed), member_id)
    tables, members = streams.tables, streams.members.items()
    assert (active, standby) == (tables.active_owners, tables.standby_owners)
    assert tables.due_ms == {member_id: each.due_ms for member_id, each in members if each.due_ms}
    epoch = streams.assignment_epoch
    settled = {member_id for member_id, each in members if each.state == RECONCILED and each.epoch == epoch}
    assert tables.settled.keys() == settled
    assert streams.static_members == {
        each.instance_id: each.member_id for each in streams.members.values() if each.instance_id is not None
    }
    configured = configure(state, streams.topology)
    assert not streams.members or tables.configured in (None, configured)
    assert (group.state == EMPTY) == (not streams.members)
    assert (group.state == NOT_READY) == bool(streams.members and configured.status)
    is_ready = bool(streams.members) and configured.status is None
    assert (group.state == ASSIGNING) == (is_ready and streams.assignment_epoch < streams.epoch)


def check_streams_member(streams: StreamsGroup, member: StreamsMember) -> None:
    assert member.epoch == AWAY or 0 <= member.previous_epoch <= member.epoch <= streams.assignment_epoch
    assert (member.state == REVOKING) == bool(member.revoking_active or member.revoking_standby)
    assert member.state != REVOKING or member.due_ms
    for tasks in (member.active, member.revoking_active, member.standby, member.revoking_standby):
        for numbers in tasks.values():
            assert list(numbers) == sorted(set(numbers)) != []
    for epochs in member.active.values():
        assert all(0 <= epoch <= streams.assignment_epoch for epoch in epochs.values())
    if member.state == RECONCILED and member.epoch == streams.assignment_epoch:
        assert {each: list(epochs) for each, epochs in member.active.items()} == member.target_active
        assert member.standby == member.target_standby


def topologies_bytes(state: State) -> int:
    """The part of `group_bytes` that the topologies take."""
    item_bytes = state.limits.streams.topology_item_bytes
    streams = [group.streams for group in state.groups.values() if group.streams is not None]
    return sum(topology_bytes(each.topology, item_bytes) for each in streams)
