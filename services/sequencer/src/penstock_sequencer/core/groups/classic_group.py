"""States of classic groups, as in Kafka's GroupCoordinator: members, rebalances, generations, deadlines.

    Empty               -- a member joins ----------------------------------------------> PreparingRebalance
    PreparingRebalance  -- all have joined, or the deadline passed ---------------------> CompletingRebalance
    PreparingRebalance  -- the same, and no member is left -----------------------------> Empty
    CompletingRebalance -- the leader has synced ---------------------------------------> Stable
    CompletingRebalance -- a member joins, leaves, changes its metadata or sends no sync > PreparingRebalance
    Stable              -- the same, or the leader joins again -------------------------> PreparingRebalance

Only an empty group can be deleted; Kafka calls a group that does not exist Dead. The first rebalance of an empty group
waits `group.initial.rebalance.delay.ms`. It waits again while new members join, up to the rebalance timeout. The
functions here leave the group's deadline to `settle`, which every command that changed a group calls last.
"""

from penstock.contracts.commands import GroupProtocol, Joined, JoinedMember, Synced
from penstock.contracts.configs.members import INITIAL_REBALANCE_DELAY, group_config
from penstock.contracts.levels import LATE_JOINS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.timers import record_emptied, record_idle, set_deadline
from penstock_sequencer.core.state.cluster import COMPLETING, EMPTY, PREPARING, STABLE, Changes, Group, Member, State
from penstock_sequencer.core.state.group_sizes import count_member, names_bytes
from penstock_sequencer.core.state.limits import MEMBER_OVERHEAD_BYTES
from penstock_sequencer.core.state.shares import count_group


def new_group(state: State, group_id: str, owner: int) -> Group:
    """An empty group, added to the state; `owner` is the number of the principal that makes it."""
    group = Group(
        group_id=group_id,
        state=EMPTY,
        generation=0,
        protocol_type="",
        protocol="",
        leader="",
        members={},
        static_members={},
        protocol_counts={},
        pending={},
        fenced={},
        offsets={},
        owner=owner,
    )
    state.groups[group_id] = group
    count_group(state, owner, 1)
    return group


def is_waiting(group: Group, member: Member) -> bool:
    """Whether the member waits for an answer; then its silence is no reason to remove it."""
    return member.joining or (group.state == COMPLETING and member.synced)


def check_member(group: Group, member_id: str, group_instance_id: str | None) -> Rejection:
    """Whether this is a member of the group, and the current member of its instance id (KIP-345)."""
    if group_instance_id is not None:
        current = group.static_members.get(group_instance_id)
        if current is None:
            return Rejection.UNKNOWN_MEMBER
        return Rejection.NONE if current == member_id else Rejection.FENCED_INSTANCE
    return Rejection.NONE if member_id in group.members else Rejection.UNKNOWN_MEMBER


def supports(group: Group, protocol_type: str, protocols: list[GroupProtocol]) -> bool:
    """Whether a member with these protocols shares one with all members of the group."""
    if group.state == EMPTY:
        return bool(protocol_type and protocols)
    size = len(group.members)
    counts = group.protocol_counts
    return protocol_type == group.protocol_type and any(counts.get(each.name, 0) == size for each in protocols)


def add_member(state: State, group: Group, member: Member, protocol_type: str) -> None:
    """Add a new member. It starts a rebalance, or takes part in the current one."""
    if group.state == PREPARING and group.generation == 0:
        group.newcomer = True
    if not group.members:
        group.protocol_type = protocol_type
        group.leader = member.member_id
    group.members[member.member_id] = member
    if member.group_instance_id is not None:
        place_static(state, group, member.group_instance_id, member.member_id)
    count_protocols(group, member, 1)
    weigh(state, member)
    member.joining = True
    prepare_rebalance(state, group)


def place_static(state: State, group: Group, instance_id: str, member_id: str) -> None:
    """Make the member the one of its instance id from now on."""
    group.static_members[instance_id] = member_id
    if state.level >= LATE_JOINS_LEVEL:
        group.static_since[instance_id] = state.sequence


def weigh(state: State, member: Member) -> None:
    """Update the member's size after a change."""
    protocol_bytes = sum(len(each.name) + len(each.metadata) for each in member.protocols)
    size_bytes = MEMBER_OVERHEAD_BYTES + protocol_bytes + len(member.assignment)
    size_bytes += names_bytes(state, member.member_id, member.group_instance_id, member.client_id, member.client_host)
    count_member(state, member, size_bytes)


def count_protocols(group: Group, member: Member, step: int) -> None:
    """The member's protocols gain (1) or lose (-1) a supporter."""
    counts = group.protocol_counts
    for name in dict.fromkeys(protocol.name for protocol in member.protocols):
        counts[name] = counts.get(name, 0) + step
        if not counts[name]:
            del counts[name]


def remove_member(state: State, group: Group, member_id: str) -> None:
    """Remove a member; the other members rebalance."""
    _drop_member(state, group, member_id)
    if group.state in (STABLE, COMPLETING):
        prepare_rebalance(state, group)
    else:
        complete_if_all_joined(state, group)


def _drop_member(state: State, group: Group, member_id: str) -> None:
    member = group.members.pop(member_id)
    count_protocols(group, member, -1)
    count_member(state, member, 0)
    if member.group_instance_id is not None:
        del group.static_members[member.group_instance_id]
        group.static_since.pop(member.group_instance_id, None)
    if group.leader == member_id:
        group.leader = next(iter(group.members), "")


def prepare_rebalance(state: State, group: Group) -> None:
    """Start a rebalance, in which all members join again, unless one is being prepared."""
    if group.state != PREPARING:
        if group.state == COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                weigh(state, member)
        group.sync_deadline_ms = 0
        group.newcomer = False
        timeout_ms = _rebalance_timeout_ms(group)
        delay_ms = group_config(INITIAL_REBALANCE_DELAY, state.cluster_configs)
        if group.state == EMPTY and delay_ms:
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(timeout_ms - delay_ms, 0)
            group.join_deadline_ms = state.clock_ms + delay_ms
        else:
            group.join_deadline_ms = state.clock_ms + timeout_ms
        group.state = PREPARING
    complete_if_all_joined(state, group)


def _rebalance_timeout_ms(group: Group) -> int:
    """The longest timeout of all members; at least 1, so that every deadline is in the future."""
    return max((member.rebalance_timeout_ms for member in group.members.values()), default=1)


def complete_if_all_joined(state: State, group: Group) -> None:
    """End the preparation if the group waits for no member, no pending id and no initial delay."""
    if group.state != PREPARING or group.initial_delay_ms or group.pending:
        return
    if all(member.joining for member in group.members.values()):
        _complete_join(state, group)


def _complete_join(state: State, group: Group) -> None:
    """The time to join is over: remove dynamic members that did not join, keep static ones (KIP-345)."""
    late = [m.member_id for m in group.members.values() if not m.joining and m.group_instance_id is None]
    for member_id in late:
        _drop_member(state, group, member_id)
    if group.members and not _elect_joined_leader(group):
        group.join_deadline_ms = state.clock_ms + _rebalance_timeout_ms(group)
        return
    group.generation += 1
    group.initial_delay_ms = group.initial_remaining_ms = group.join_deadline_ms = 0
    if not group.members:
        group.state, group.protocol = EMPTY, ""
        record_emptied(state, group)
        return
    group.state, group.protocol = COMPLETING, select_protocol(group)
    group.sync_deadline_ms = state.clock_ms + _rebalance_timeout_ms(group)
    for member in group.members.values():
        member.joining = member.synced = False
        member.active_sequence = state.sequence


def _elect_joined_leader(group: Group) -> bool:
    """Whether a leader has joined; the first member that joined replaces a leader that did not."""
    if group.members[group.leader].joining:
        return True
    joined = next((member_id for member_id, member in group.members.items() if member.joining), None)
    if joined is not None:
        group.leader = joined
    return joined is not None


def select_protocol(group: Group) -> str:
    """The protocol that all members support and most members prefer; of equals, the first with a vote."""
    size = len(group.members)
    votes: dict[str, int] = {}
    for member in group.members.values():
        vote = next(each.name for each in member.protocols if group.protocol_counts[each.name] == size)
        votes[vote] = votes.get(vote, 0) + 1
    return max(votes, key=votes.__getitem__)


def joined(group: Group, member: Member) -> Joined:
    """The answer to the member's JoinGroup; only the leader's answer lists the members.

    While the next rebalance is prepared, a late answer names no leader. The leader of the generation may have left, and
    no other member leads it. The member then syncs, and that answer makes it join again.
    """
    leader = "" if group.state == PREPARING else group.leader
    members: list[JoinedMember] = []
    if leader == member.member_id:
        members = [
            JoinedMember(each.member_id, each.group_instance_id, metadata(group, each))
            for each in group.members.values()
        ]
    return Joined(group.generation, group.protocol_type, group.protocol, leader, member.member_id, members)


def synced(group: Group, member: Member) -> Synced:
    """The answer to the member's SyncGroup."""
    return Synced(group.protocol_type, group.protocol, member.assignment)


def metadata(group: Group, member: Member) -> bytes:
    """The member's metadata for the protocol in use."""
    return next((each.metadata for each in member.protocols if each.name == group.protocol), b"")


def settle(state: State, group: Group, changes: Changes) -> None:
    """Update the group's deadline, and report the group as changed, so that waiting members read it again."""
    deadlines = [*group.pending.values(), group.join_deadline_ms, group.sync_deadline_ms]
    set_deadline(state, group.group_id, min((each for each in deadlines if each), default=0))
    changes.groups[group.group_id] = None
    record_idle(state, group)


def fire(state: State, group: Group) -> None:
    """Do what is due in the group by the machine's clock; `settle` then sets a deadline in the future."""
    for member_id in [each for each, expiry_ms in group.pending.items() if expiry_ms <= state.clock_ms]:
        del group.pending[member_id]
    if group.state == PREPARING and group.join_deadline_ms <= state.clock_ms:
        _end_join_wait(state, group)
    elif group.sync_deadline_ms and group.sync_deadline_ms <= state.clock_ms:
        _drop_unsynced(state, group)
    else:
        complete_if_all_joined(state, group)


def _end_join_wait(state: State, group: Group) -> None:
    """The initial delay ends, or is extended while new members join, up to the rebalance timeout."""
    if group.initial_delay_ms and group.newcomer and group.initial_remaining_ms:
        delay_ms = min(
            group_config(INITIAL_REBALANCE_DELAY, state.cluster_configs) or group.initial_delay_ms,
            group.initial_remaining_ms,
        )
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        group.newcomer = False
        group.join_deadline_ms = state.clock_ms + delay_ms
    else:
        _complete_join(state, group)


def _drop_unsynced(state: State, group: Group) -> None:
    """Remove members that joined and never synced: they would block the group for ever, even with heartbeats."""
    for member_id in [member.member_id for member in group.members.values() if not member.synced]:
        _drop_member(state, group, member_id)
    group.sync_deadline_ms = 0
    prepare_rebalance(state, group)
