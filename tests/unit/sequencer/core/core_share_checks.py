"""Checks of the share group invariants in share_state.py and state.py."""

from penstock_sequencer.core.share.offset_ranges import end_of
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.share_group import ACQUIRED, AVAILABLE, DONE, PENDING, ShareGroup, SharePartition


def check_share_groups(state: State) -> None:
    topics: dict[bytes, set[str]] = {}
    for group_id, group in state.share_groups.items():
        assert group.group_id == group_id
        assert group_id not in state.groups
        assert group_id not in state.transactions_by_group
        assert group.members or group.partitions, "a group without both is removed"
        check_members(state, group)
        due = [share.due_ms for shares in group.partitions.values() for share in shares.values() if share.due_ms]
        due += [group.target_due_ms] * bool(group.target_due_ms)
        assert state.deadlines.get(group_id, 0) <= min(due, default=state.deadlines.get(group_id, 0))
        assert not due or state.deadlines[group_id] > state.clock_ms
        for topic_id, shares in group.partitions.items():
            assert shares
            topics.setdefault(topic_id, set()).add(group_id)
            assert topic_id in state.topics_by_id or topic_id in state.recoverable
            for share in shares.values():
                check_share(state, group, share)
    assert topics == {topic_id: {*groups} for topic_id, groups in state.share_topics.items()}
    all_shares = [
        share for group in state.share_groups.values() for each in group.partitions.values() for share in each.values()
    ]
    assert state.share_partition_count == len(all_shares)
    assert state.share_record_count == sum(
        share.in_flight if group.members else min(len(share.holds), share.in_flight)
        for group in state.share_groups.values()
        for each in group.partitions.values()
        for share in each.values()
    )
    assert all(state.group_configs.values())
    assert state.dead_letters == {group_id: keys for group_id, keys in pending(state).items() if keys}


def pending(state: State) -> dict[str, dict[tuple[bytes, int], None]]:
    """The partitions with pending dead letters, by group."""
    return {
        group_id: {
            (topic_id, number): None
            for topic_id, shares in group.partitions.items()
            for number, share in shares.items()
            if any(hold.status in PENDING for hold in share.holds)
        }
        for group_id, group in state.share_groups.items()
    }


def check_members(state: State, group: ShareGroup) -> None:
    assert (group.assignment_epoch < group.epoch) == bool(group.target_due_ms)
    assert not group.target_due_ms or group.assigned_ms < group.target_due_ms
    assert group.members or not group.assigned_ms
    for member_id, member in group.members.items():
        assert member.member_id == member_id
        assert (group.group_id, member_id) not in state.departed
        assert 0 <= member.previous_epoch <= member.epoch <= group.assignment_epoch
        assert len(member.tickets) <= 8
        assert all(each.acquisition <= group.acquisitions for each in member.tickets.values())
        for topic_id, numbers in member.target.items():
            assert numbers == sorted(set(numbers)) != []
            assert group.target_due_ms or {*numbers} <= group.partitions[topic_id].keys()


def check_share(state: State, group: ShareGroup, share: SharePartition) -> None:
    place = share.start
    for hold in share.holds:
        assert hold.first == place <= hold.last
        place = hold.last + 1
        assert hold.status in (AVAILABLE, ACQUIRED, DONE, *PENDING)
        assert hold.deliveries >= 0
        if hold.status == ACQUIRED:
            assert hold.member_id in group.members
            assert state.clock_ms < hold.until_ms
            assert 0 < share.due_ms <= hold.until_ms
            assert 0 < hold.acquisition <= group.acquisitions
            assert hold.deliveries
        elif hold.status in PENDING:
            assert (hold.member_id, hold.until_ms) == ("", 0)
            assert 0 < hold.acquisition <= state.sequence
            assert hold.deliveries
        else:
            assert (hold.member_id, hold.acquisition) == ("", 0)
            assert not hold.until_ms or (hold.status == AVAILABLE and state.clock_ms < hold.until_ms)
            assert not hold.until_ms or 0 < share.due_ms <= hold.until_ms
        assert hold.status != DONE or not hold.deliveries
    assert place == end_of(share)
    assert not share.holds or share.holds[0].status != DONE
    for before, after in zip(share.holds, share.holds[1:], strict=False):
        assert [*vars_of(before)] != [*vars_of(after)], "equal neighbours are merged"
    in_flight = sum(hold.last - hold.first + 1 for hold in share.holds if hold.status != DONE)
    assert share.in_flight == in_flight
    assert len(share.holds) <= 2 * in_flight + 1


def vars_of(hold: object) -> list[object]:
    return [getattr(hold, name) for name in ("status", "deliveries", "member_id", "until_ms", "acquisition")]
