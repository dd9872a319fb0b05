"""A member is silent only if no replica heard it for its whole session timeout."""

from penstock.contracts.messages import HeardMember
from penstock_sequencer.serving.member_liveness import LIVENESS_LIMITS, LivenessLimits, MemberLiveness

TIMEOUT_MS = 10_000


def watched(active_sequence: int = 1, waiting: bool = False, member_id: str = "m") -> tuple[str, str, int, int, bool]:
    return ("g", member_id, TIMEOUT_MS, active_sequence, waiting)


def looked_at(
    *seen: tuple[str, str, int, int, bool], at_s: float = 100.0, limits: LivenessLimits = LIVENESS_LIMITS
) -> MemberLiveness:
    members = MemberLiveness(limits)
    assert not members.silent(seen, at_s)
    return members


def test_a_member_seen_for_the_first_time_has_its_whole_timeout_left() -> None:
    members = looked_at(watched())
    assert not members.silent([watched()], 109.9)
    assert members.silent([watched()], 110.0) == [("g", "m", 1)]


def test_a_heartbeat_at_any_replica_restarts_the_timeout() -> None:
    members = looked_at(watched(), watched(member_id="n"))
    members.record_heartbeat("g", "m", 105.0)
    members.record_heard_elsewhere([HeardMember("g", "n")], 106.0)
    assert not members.silent([watched(), watched(member_id="n")], 114.9)
    assert members.silent([watched(), watched(member_id="n")], 115.0) == [("g", "m", 1)]


def test_activity_in_the_journal_restarts_the_timeout() -> None:
    members = looked_at(watched(active_sequence=1))
    assert not members.silent([watched(active_sequence=2)], 109.0)
    assert not members.silent([watched(active_sequence=2)], 118.9)
    assert members.silent([watched(active_sequence=2)], 119.0) == [("g", "m", 2)]


def test_activity_in_the_journal_counts_from_the_time_at_which_it_was_applied() -> None:
    members = looked_at(watched(active_sequence=1))
    applied = {2: 100.1}.get
    assert not members.silent([watched(active_sequence=2)], 100.5, applied)
    assert members.next_due_s == 110.1
    assert members.silent([watched(active_sequence=2)], 110.1, applied) == [("g", "m", 2)]


def test_a_heartbeat_after_the_activity_in_the_journal_counts() -> None:
    members = looked_at(watched(active_sequence=1))
    members.record_heartbeat("g", "m", 100.3)
    assert not members.silent([watched(active_sequence=2)], 100.5, {2: 100.1}.get)
    assert members.next_due_s == 110.3


def test_activity_before_possibly_missed_heartbeats_does_not_count() -> None:
    members = looked_at(watched(active_sequence=1))
    members.restart()
    assert not members.silent([watched(active_sequence=1)], 150.0, {1: 90.0}.get)
    assert members.next_due_s == 160.0


def test_the_next_check_is_due_with_the_first_member_that_is_not_silent_yet() -> None:
    members = looked_at(watched(), watched(member_id="n"))
    members.record_heartbeat("g", "n", 104.0)
    assert members.silent([watched(), watched(member_id="n")], 111.0) == [("g", "m", 1)]
    assert members.next_due_s == 114.0
    assert not members.silent([], 112.0) and members.next_due_s == float("inf")


def test_a_waiting_member_is_never_silent_and_has_its_whole_timeout_afterwards() -> None:
    members = looked_at(watched(waiting=True))
    assert not members.silent([watched(waiting=True)], 200.0)
    assert not members.silent([watched()], 209.9)
    assert members.silent([watched()], 210.0) == [("g", "m", 1)]


def test_after_possibly_missed_heartbeats_every_member_has_its_whole_timeout() -> None:
    members = looked_at(watched())
    members.restart()
    assert not members.silent([watched()], 150.0)
    assert members.silent([watched()], 160.0) == [("g", "m", 1)]


def test_a_silent_member_stays_silent_until_it_is_removed() -> None:
    members = looked_at(watched())
    assert members.silent([watched()], 111.0) == members.silent([watched()], 112.0) == [("g", "m", 1)]


def test_a_heard_member_is_shared_once() -> None:
    members = MemberLiveness()
    members.record_heartbeat("g", "m", 1.0)
    members.record_heartbeat("g", "m", 2.0)
    members.record_heartbeat("h", "n", 2.0)
    assert members.take_fresh() == [HeardMember("g", "m"), HeardMember("h", "n")]
    assert members.take_fresh() == []


def test_members_heard_by_other_replicas_are_not_shared_again() -> None:
    members = MemberLiveness()
    members.record_heard_elsewhere([HeardMember("g", "m")], 1.0)
    assert members.take_fresh() == []


def test_heartbeats_of_unknown_members_do_not_fill_the_memory() -> None:
    members = looked_at(watched(), limits=LivenessLimits(tracked_members_max=3))
    for number in range(10):
        members.record_heartbeat("g", f"stranger-{number}", 105.0)
    members.record_heartbeat("g", "m", 105.0)
    assert len(members) == 3
    assert len(members.take_fresh()) == 3
    assert not members.silent([watched()], 114.0)
    assert len(members) == 1


def test_a_replica_is_deaf_until_the_bus_brings_a_message_and_when_it_brings_none_for_long() -> None:
    """Not even its own: then the bus stands still, and the silence of all members is not theirs."""
    members = MemberLiveness(LivenessLimits(deaf_s=3.0))
    assert members.is_deaf(100.0)
    members.record_message(100.0)
    assert not members.is_deaf(103.0)
    assert members.is_deaf(103.1)
