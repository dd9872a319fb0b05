"""Joins of classic groups: ids, protocols, delays, generations and leaders, as in Kafka."""

import pytest

from penstock.contracts.commands import Joined, JoinedMember, MemberIdRequired, Rejected, Waiting
from penstock.contracts.levels import GROUP_SIZES_LEVEL
from penstock.contracts.queries.groups import DescribeGroupsQuery, GroupsQuery, GroupSummary
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.cluster import COMPLETING, EMPTY, PREPARING, STABLE
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, MEMBER_OVERHEAD_BYTES, GroupLimits, Limits
from tests.unit.sequencer.core.core_world import INITIAL_DELAY_MS as DELAY_MS, World

SESSION_TIMEOUT_MIN_MS, SESSION_TIMEOUT_MAX_MS = 6_000, 1_800_000  # Kafka's defaults


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_member_waits_for_the_initial_delay_and_leads_generation_one(world: World) -> None:
    assert world.classic.join("m1") == Waiting("m1", 0)
    assert queries.next_deadline_ms(world.state) == world.now_ms + DELAY_MS
    world.wait(DELAY_MS - 1)
    assert world.classic.wait_outcome("join", "m1", 0) == Waiting("m1", 0)
    world.wait(1)
    assert world.effects is not None
    assert world.effects.groups == ["g"]
    expected = Joined(1, "consumer", "range", "m1", "m1", [JoinedMember("m1", None, b"meta")])
    assert world.classic.wait_outcome("join", "m1", 0) == expected


def test_the_initial_delay_is_extended_while_members_join(world: World) -> None:
    world.classic.join("m1")
    world.wait(DELAY_MS - 1)
    world.classic.join("m2")
    world.wait(1)
    assert world.group().state == PREPARING
    world.wait(DELAY_MS - 1)
    assert world.group().state == PREPARING
    world.wait(1)
    assert world.group().state == COMPLETING
    assert list(world.group().members) == ["m1", "m2"]


def test_the_initial_delay_never_outlasts_the_rebalance_timeout(world: World) -> None:
    world.classic.join("m0", rebalance_ms=2 * DELAY_MS)
    for number in range(1, 40):
        world.wait(DELAY_MS // 4)
        world.classic.join(f"m{number}", rebalance_ms=2 * DELAY_MS)
        if world.group().generation:
            break
    assert world.group().generation == 1
    assert number * DELAY_MS // 4 <= 3 * DELAY_MS


def test_only_the_leader_gets_the_members(world: World) -> None:
    world.classic.join("m1", protocols={"range": b"one"})
    world.classic.join("m2", protocols={"range": b"two"})
    world.classic.finish_initial_delay()
    members = [JoinedMember("m1", None, b"one"), JoinedMember("m2", None, b"two")]
    assert world.classic.wait_outcome("join", "m1", 0) == Joined(1, "consumer", "range", "m1", "m1", members)
    assert world.classic.wait_outcome("join", "m2", 0) == Joined(1, "consumer", "range", "m1", "m2", [])


def test_any_command_whose_time_passes_a_deadline_fires_it(world: World) -> None:
    world.classic.join("m1")
    world.now_ms += DELAY_MS
    world.topic()
    assert world.group().state == COMPLETING
    assert world.effects is not None
    assert world.effects.groups == ["g"]


def test_a_member_that_must_be_known_first_gets_its_id_and_then_joins(world: World) -> None:
    assert world.classic.join("m1", require_known_member=True) == MemberIdRequired("m1")
    assert world.group().state == EMPTY
    assert world.classic.join("", "m1") == Waiting("m1", 0)
    world.wait(DELAY_MS)
    assert list(world.group().members) == ["m1"]


def test_a_member_id_that_is_not_used_expires_after_the_session_timeout(world: World) -> None:
    world.classic.join("m1", require_known_member=True, session_ms=6_000)
    world.wait(6_000)
    assert world.classic.join("", "m1").rejection == Rejection.UNKNOWN_MEMBER


def test_a_rebalance_waits_for_pending_member_ids(world: World) -> None:
    world.classic.stable_group("m1")
    world.classic.join("m2", require_known_member=True, session_ms=6_000)
    world.classic.join("", "m1", protocols={"range": b"new"})
    assert world.group().state == PREPARING
    world.wait(6_000)
    assert world.group().state == COMPLETING
    assert list(world.group().members) == ["m1"]


def test_a_repeated_join_makes_no_second_member(world: World) -> None:
    assert world.classic.join("m1") == world.classic.join("m1") == Waiting("m1", 0)
    assert world.classic.join("m2", require_known_member=True) == world.classic.join("m2", require_known_member=True)
    world.classic.finish_initial_delay()
    joined = world.classic.join("m1")
    assert isinstance(joined, Joined)
    assert joined.generation == 1
    assert list(world.group().members) == ["m1"]
    assert list(world.group().pending) == ["m2"]


def test_a_group_rejects_a_member_id_that_it_does_not_know(world: World) -> None:
    assert world.classic.join("", "m1").rejection == Rejection.UNKNOWN_MEMBER
    assert world.state.groups == {}
    world.classic.join("m1")
    assert world.classic.join("", "m2").rejection == Rejection.UNKNOWN_MEMBER


@pytest.mark.parametrize("session_ms", [SESSION_TIMEOUT_MIN_MS - 1, SESSION_TIMEOUT_MAX_MS + 1, -1])
def test_session_timeouts_outside_of_the_limits_are_rejected(world: World, session_ms: int) -> None:
    assert world.classic.join(session_ms=session_ms).rejection == Rejection.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("session_ms", [SESSION_TIMEOUT_MIN_MS, SESSION_TIMEOUT_MAX_MS])
def test_session_timeouts_at_the_limits_are_accepted(world: World, session_ms: int) -> None:
    assert world.classic.join(session_ms=session_ms) == Waiting("m1", 0)


def test_the_limits_of_session_timeouts_can_be_configured(world: World) -> None:
    world.configure(**{"group.min.session.timeout.ms": "7000", "group.max.session.timeout.ms": "8000"})
    assert world.classic.join(session_ms=6_999).rejection == Rejection.INVALID_SESSION_TIMEOUT
    assert world.classic.join(session_ms=8_001).rejection == Rejection.INVALID_SESSION_TIMEOUT
    assert world.classic.join(session_ms=8_000) == Waiting("m1", 0)


def test_the_initial_delay_can_be_configured(world: World) -> None:
    world.configure(**{"group.initial.rebalance.delay.ms": "3000"})
    world.classic.join("m1")
    assert queries.next_deadline_ms(world.state) == world.now_ms + 3_000


def test_without_an_initial_delay_the_first_member_is_answered_at_once(world: World) -> None:
    world.configure(**{"group.initial.rebalance.delay.ms": "0"})
    assert world.classic.join("m1").generation == 1


def test_a_delay_in_progress_ends_after_the_configuration_was_removed(world: World) -> None:
    world.classic.join("m1")
    world.configure(**{"group.initial.rebalance.delay.ms": "0"})
    world.classic.join("m2")
    world.classic.finish_initial_delay()
    assert world.group().generation == 1


@pytest.mark.parametrize("group_id", ["", "x" * (DEFAULT_LIMITS.groups.group_id_length_max + 1)])
def test_a_group_id_has_a_limited_length(world: World, group_id: str) -> None:
    assert world.classic.join(group_id=group_id).rejection == Rejection.INVALID_GROUP


def test_a_member_needs_an_id_and_protocols_of_limited_size(world: World) -> None:
    assert world.classic.join("").rejection == Rejection.INVALID_REQUEST
    many = {str(number): b"" for number in range(DEFAULT_LIMITS.groups.protocols_per_member_max + 1)}
    assert world.classic.join(protocols=many).rejection == Rejection.INVALID_REQUEST
    assert (
        world.classic.join(protocols={"range": bytes(DEFAULT_LIMITS.groups.member_bytes_max)}).rejection
        == Rejection.INVALID_REQUEST
    )


def test_a_members_names_have_a_limited_length(world: World) -> None:
    assert (
        world.classic.join("x" * DEFAULT_LIMITS.groups.member_names_length_max).rejection == Rejection.INVALID_REQUEST
    )


def test_all_members_together_have_a_limit_of_bytes(world: World) -> None:
    generation = world.classic.stable_group("m1")
    world.use_limits(Limits(groups=GroupLimits(group_bytes_max=world.state.group_bytes)))
    assert world.classic.join("m2").rejection == Rejection.OVERLOADED
    assert world.classic.sync("m1", generation, {"m1": b"x"}).rejection == Rejection.OVERLOADED
    world.use_limits(Limits(groups=GroupLimits(group_bytes_max=2 * world.state.group_bytes + MEMBER_OVERHEAD_BYTES)))
    assert world.classic.join("m2") == Waiting("m2", generation)
    world.classic.leave(("m1", None), ("m2", None))
    assert world.state.group_bytes == 0


def test_from_its_level_on_the_size_of_a_member_counts_its_names() -> None:
    world = World(level=GROUP_SIZES_LEVEL)
    world.classic.join("m" * 1_000)
    before_bytes = world.state.group_bytes
    world.classic.join("n" * 3_000)
    assert world.state.group_bytes == 2 * before_bytes + 2_000


def test_one_group_leaves_room_for_members_of_other_groups() -> None:
    world = World(Limits(groups=GroupLimits(members_per_group_bytes_max=10_000)), level=GROUP_SIZES_LEVEL)
    assert isinstance(world.classic.join("m1", protocols={"range": bytes(6_000)}), Waiting)
    assert world.classic.join("m2", protocols={"range": bytes(6_000)}).rejection == Rejection.OVERLOADED
    assert isinstance(world.classic.join("m2", protocols={"range": bytes(6_000)}, group_id="other"), Waiting)


def test_a_full_table_keeps_its_members() -> None:
    world = World(level=GROUP_SIZES_LEVEL)
    generation = world.classic.stable_group("m1")
    world.use_limits(Limits(groups=GroupLimits(members_bytes_max=world.state.member_bytes)))
    assert world.classic.join("m2").rejection == Rejection.OVERLOADED
    assert world.classic.sync("m1", generation, {"m1": bytes(100_000)}).rejection == Rejection.OVERLOADED
    assert not isinstance(world.classic.join("m1"), Rejected), "it joins again with the same size"


def test_a_group_needs_a_protocol_type_and_protocols(world: World) -> None:
    assert world.classic.join(kind="").rejection == Rejection.INCONSISTENT_PROTOCOL
    assert world.classic.join(protocols={}).rejection == Rejection.INCONSISTENT_PROTOCOL
    assert world.state.groups == {}


def test_members_must_share_type_and_a_protocol_with_all_others(world: World) -> None:
    world.classic.join("m1", protocols={"a": b"", "b": b""})
    assert world.classic.join("m2", kind="connect", protocols={"a": b""}).rejection == Rejection.INCONSISTENT_PROTOCOL
    assert world.classic.join("m2", protocols={"c": b""}).rejection == Rejection.INCONSISTENT_PROTOCOL
    world.classic.join("m2", protocols={"b": b"", "c": b""})
    assert world.classic.join("m3", protocols={"a": b"", "c": b""}).rejection == Rejection.INCONSISTENT_PROTOCOL
    assert list(world.group().members) == ["m1", "m2"]


def test_an_empty_group_accepts_another_protocol_type(world: World) -> None:
    world.classic.stable_group("m1")
    world.classic.leave(("m1", None))
    assert world.group().state == EMPTY
    world.classic.join("m2", kind="connect", protocols={"eager": b""})
    world.wait(DELAY_MS)
    assert (world.group().protocol_type, world.group().protocol) == ("connect", "eager")


def test_the_protocol_that_most_members_prefer_is_chosen_among_the_common_ones(world: World) -> None:
    world.classic.join("m1", protocols={"a": b"", "b": b"", "c": b""})
    world.classic.join("m2", protocols={"d": b"", "c": b"", "b": b""})
    world.classic.join("m3", protocols={"c": b"", "b": b""})
    world.classic.finish_initial_delay()
    assert world.group().protocol == "c"


def test_a_new_member_makes_a_stable_group_rebalance_and_the_others_join_again(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    assert world.classic.join("m3") == Waiting("m3", generation)
    assert world.classic.heartbeat("m1", generation) == Rejection.REBALANCE_IN_PROGRESS
    world.classic.join("", "m2")
    joined = world.classic.join("", "m1")
    assert joined.generation == generation + 1
    assert [member.member_id for member in joined.members] == ["m1", "m2", "m3"]
    assert world.classic.wait_outcome("join", "m3", generation).generation == generation + 1


def test_members_that_do_not_join_again_in_time_are_dropped(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    world.classic.join("m3")
    world.classic.join("", "m2")
    world.wait(59_999)
    assert world.group().state == PREPARING
    world.wait(1)
    assert world.group().state == COMPLETING
    assert list(world.group().members) == ["m2", "m3"]
    assert world.group().leader == "m2"
    assert world.classic.heartbeat("m1", generation + 1) == Rejection.UNKNOWN_MEMBER


def test_the_longest_rebalance_timeout_of_the_members_counts(world: World) -> None:
    world.classic.join("m1", rebalance_ms=20_000)
    world.classic.join("m2", rebalance_ms=90_000)
    world.classic.finish_initial_delay()
    world.classic.join("", "m1", protocols={"range": b"new"})
    assert queries.next_deadline_ms(world.state) == world.now_ms + 90_000


def test_a_follower_that_joins_a_stable_group_unchanged_gets_the_current_generation(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    assert world.classic.join("", "m2") == Joined(generation, "consumer", "range", "m1", "m2", [])
    assert world.group().state == STABLE


def test_a_follower_with_new_metadata_makes_the_group_rebalance(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    assert world.classic.join("", "m2", protocols={"range": b"other"}) == Waiting("m2", generation)
    assert world.group().state == PREPARING


def test_a_leader_that_joins_a_stable_group_makes_it_rebalance(world: World) -> None:
    generation = world.classic.stable_group("m1", "m2")
    assert world.classic.join("", "m1") == Waiting("m1", generation)
    assert world.group().state == PREPARING


def test_members_that_join_unchanged_before_the_assignment_get_the_same_generation(world: World) -> None:
    world.classic.join("m1")
    world.classic.join("m2")
    world.classic.finish_initial_delay()
    assert len(world.classic.join("", "m1").members) == 2
    assert world.classic.join("", "m2").members == []
    assert (world.group().state, world.group().generation) == (COMPLETING, 1)
    assert world.classic.join("", "m2", protocols={"range": b"other"}) == Waiting("m2", 1)
    assert world.group().state == PREPARING


def test_a_full_group_accepts_no_more_members(world: World) -> None:
    world.configure(**{"group.max.size": "1"})
    world.classic.join("m0", require_known_member=True)
    world.classic.join("m1")
    for outcome in (
        world.classic.join("m2"),
        world.classic.join("m2", require_known_member=True),
        world.classic.join("m2", instance="i"),
        world.classic.join("", "m0"),
    ):
        assert outcome == Rejected(Rejection.GROUP_FULL)
    assert world.classic.join("", "m1") == Waiting("m1", 0)


def test_pending_member_ids_and_groups_are_limited(world: World) -> None:
    world.use_limits(Limits(groups=GroupLimits(group_pending_max=1, groups_max=1)))
    world.classic.join("m1", require_known_member=True)
    assert world.classic.join("m2", require_known_member=True).rejection == Rejection.GROUP_FULL
    assert world.classic.join("m1", group_id="other").rejection == Rejection.OVERLOADED


def test_an_empty_group_without_offsets_is_removed_after_a_while(world: World) -> None:
    world.topic()
    world.classic.stable_group("m1")
    world.classic.leave(("m1", None))
    world.wait(DEFAULT_LIMITS.groups.group_idle_ms - 1)
    assert queries.groups(world.state, GroupsQuery(0, ["Empty"])).groups == [GroupSummary("g", "consumer", "Empty")]
    world.wait(1)
    assert world.state.groups == {}


def test_an_empty_group_with_offsets_stays(world: World) -> None:
    world.topic()
    world.commit_offset()
    world.wait(DEFAULT_LIMITS.groups.group_idle_ms)
    assert list(world.state.groups) == ["g"]


def test_a_group_that_was_joined_again_is_not_removed(world: World) -> None:
    world.classic.stable_group("m1")
    world.classic.leave(("m1", None))
    world.classic.join("m2")
    world.wait(DEFAULT_LIMITS.groups.group_idle_ms)
    assert list(world.group().members) == ["m2"]


def test_groups_are_listed_by_state_and_described_with_their_members(world: World) -> None:
    world.classic.stable_group("m1", "m2")
    world.classic.join("x", group_id="h", require_known_member=True)
    assert [each.group_id for each in queries.groups(world.state, GroupsQuery(0, [])).groups] == ["g", "h"]
    assert [each.group_id for each in queries.groups(world.state, GroupsQuery(0, ["Stable"])).groups] == ["g"]
    view, missing = queries.describe_groups(world.state, DescribeGroupsQuery(0, ["g", "none"])).groups
    assert (view.state, view.protocol, len(view.members)) == ("Stable", "range", 2)
    assert (view.members[1].metadata, view.members[1].assignment) == (b"meta", b"m2")
    assert (missing.group_id, missing.state, missing.members) == ("none", "Dead", [])
