"""Members and administration of share groups (KIP-932)."""

from typing import Any

import pytest

from penstock.contracts.commands import (
    AcknowledgeType,
    AddOffsetsToTxn,
    AlterGroupConfigs,
    AlterShareOffsets,
    CommitOffsets,
    CommitTxnOffsets,
    ConfigChange,
    ConfigOperation,
    ConsumerHeartbeat,
    CreatePartitions,
    DeleteGroup,
    DeleteShareOffsets,
    DeleteTopic,
    Done,
    DropExtents,
    GroupProtocol,
    InitTransactionalProducer,
    JoinGroup,
    OffsetToCommit,
    PerItem,
    ShareOffset,
    TopicPartitions,
    UndeleteTopic,
)
from penstock.contracts.queries.groups import GroupConfigsQuery, GroupsQuery, GroupSummary
from penstock.contracts.queries.share import ShareGroupsQuery, ShareOffsetsQuery
from penstock.contracts.queries.topics import ValidateQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.groups.assignment.assignors import assign_simply
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits, ShareLimits
from tests.unit.sequencer.core.core_world import START_MS, World, batch, share_world, topic_id

T = topic_id(1)


def ask(world: World, name: str, query: Any) -> Any:
    return queries.QUERIES[name](world.state, query)


def assigned(world: World, *members: str) -> list[list[int]]:
    return [world.shares.group.members[each].target.get(T, []) for each in members]


def test_a_joining_member_gets_epoch_interval_and_partitions() -> None:
    world = share_world()
    joined = world.shares.join("one")
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (1, 5_000)
    assert joined.assignment == [TopicPartitions(T, [0])]


def test_a_heartbeat_that_changes_nothing_is_not_journaled() -> None:
    world = share_world("one")
    sequence = world.state.sequence
    answer = world.shares.heartbeat("one", 1)
    assert (answer.member_epoch, answer.assignment, world.state.sequence) == (1, None, sequence)
    assert world.shares.heartbeat("one", 1, ["t"]).assignment == [TopicPartitions(T, [0])]
    assert world.state.sequence == sequence


def test_all_members_share_a_partition() -> None:
    world = share_world("one", "two", "three")
    assert assigned(world, "one", "two", "three") == [[0], [0], [0]]


def test_partitions_are_spread_over_fewer_members() -> None:
    world = share_world("one", "two")
    world.do(CreatePartitions(world.now_ms, "t", 5))
    assert assigned(world, "one", "two") == [[0, 2, 4], [1, 3]]
    assert world.shares.heartbeat("one", 1).assignment == [TopicPartitions(T, [0, 2, 4])]


@pytest.mark.parametrize("members", range(1, 7))
@pytest.mark.parametrize("counts", [(1,), (3,), (2, 3), (6, 1, 4)])
def test_every_partition_has_a_member_and_members_have_equally_many(members: int, counts: tuple[int, ...]) -> None:
    names = [str(each) for each in range(members)]
    topics = {topic_id(number): count for number, count in enumerate(counts, 1)}
    found = assign_simply(dict.fromkeys(topics, names), topics)
    for topic, count in topics.items():
        numbers = [number for each in found.values() for number in each.get(topic, [])]
        assert {*numbers} == {*range(count)}
        loads = [len(found.get(name, {}).get(topic, [])) for name in names]
        assert max(loads) - min(loads) <= 1
        shared = [numbers.count(number) for number in range(count)]
        assert max(shared) - min(shared) <= 1
    if members <= max(counts):
        totals = [sum(map(len, found.get(name, {}).values())) for name in names]
        assert max(totals) - min(totals) <= 2


def test_a_leaving_member_is_removed_and_its_partitions_go_to_others() -> None:
    world = share_world("one", "two")
    world.do(CreatePartitions(world.now_ms, "t", 2))
    assert world.shares.leave("one").member_epoch == -1
    assert assigned(world, "two") == [[0, 1]]
    assert world.shares.heartbeat("one", 1).rejection == Rejection.UNKNOWN_MEMBER


def test_a_silent_member_is_removed_and_its_records_are_delivered_again() -> None:
    world = share_world("one", "two", records=3)
    assert world.shares.acquire("one") == [(0, 2, 1)]
    world.shares.expire("one")
    assert world.shares.acquire("two") == [(0, 2, 2)]
    watched = [each[1] for each in queries.watched_members(world.state)]
    assert watched == ["two"]


def test_only_epochs_that_a_member_may_have_are_accepted() -> None:
    world = share_world("one")
    world.shares.join("two")
    world.shares.heartbeat("one", 1, ["t", "u"])
    assert world.shares.heartbeat("one", 1).member_epoch == 3
    assert world.shares.heartbeat("one", 2).rejection == Rejection.FENCED_MEMBER_EPOCH
    assert world.shares.heartbeat("one", 4).rejection == Rejection.FENCED_MEMBER_EPOCH
    assert world.shares.join("one", "t", "u").member_epoch == 3


def test_invalid_heartbeats_are_rejected() -> None:
    world = share_world("one")
    assert world.shares.heartbeat("two", 1).rejection == Rejection.UNKNOWN_MEMBER
    assert world.shares.heartbeat("two", 1, group_id="h").rejection == Rejection.UNKNOWN_GROUP
    assert world.shares.heartbeat("", 0, ["t"]).rejection == Rejection.INVALID_REQUEST
    assert world.shares.heartbeat("two", 0).rejection == Rejection.INVALID_REQUEST
    assert world.shares.heartbeat("two", -2).rejection == Rejection.INVALID_REQUEST
    assert world.shares.heartbeat("two", 0, ["t"], rack_id="").rejection == Rejection.INVALID_REQUEST


def test_the_number_of_members_is_limited() -> None:
    world = share_world("one", "two", limits=Limits(share=ShareLimits(share_members_max=2)))
    assert world.shares.join("three").rejection == Rejection.GROUP_FULL
    assert world.shares.join("two").member_epoch == 2


def test_a_late_heartbeat_does_not_bring_back_a_departed_member() -> None:
    world = share_world("one")
    world.shares.join("two")
    seen = world.state.sequence
    world.shares.leave("two")
    assert world.shares.join("two", seen_sequence=seen).rejection == Rejection.STALE
    assert world.shares.join("two", seen_sequence=world.state.sequence).member_epoch == 4


def test_a_late_leave_does_not_remove_a_member_that_joined_again() -> None:
    world = share_world("one")
    seen = world.state.sequence - 3
    world.shares.leave("one", seen_sequence=seen)
    assert [*world.shares.group.members] == ["one"]


def test_an_id_belongs_to_one_kind_of_group() -> None:
    world = share_world("one")
    join = JoinGroup(
        START_MS, "g", "", "new", None, False, "c", "h", 10_000, 10_000, "consumer", [GroupProtocol("range", b"")]
    )
    assert world.do(join).rejection == Rejection.INCONSISTENT_PROTOCOL
    beat = ConsumerHeartbeat(START_MS, "g", "x", 0, None, None, 5_000, "c", "h", ["t"], None, None, [])
    assert world.do(beat).rejection == Rejection.UNKNOWN_GROUP
    offsets = [OffsetToCommit("t", 0, 1, -1, "")]
    assert world.do(CommitOffsets(START_MS, "g", -1, "", None, offsets)).rejection == Rejection.UNKNOWN_GROUP
    producer = world.do(InitTransactionalProducer(START_MS, "tx", 10_000))
    sender = (START_MS, "tx", producer.producer_id, producer.producer_epoch)
    assert world.do(AddOffsetsToTxn(*sender, "g")).rejection == Rejection.UNKNOWN_GROUP
    assert world.do(CommitTxnOffsets(*sender, "g", -1, "", None, offsets, True)).rejection == Rejection.UNKNOWN_GROUP
    assert "g" not in world.state.groups


def test_no_share_group_gets_another_groups_id() -> None:
    world = share_world("one")
    world.do(CommitOffsets(START_MS, "h", -1, "", None, [OffsetToCommit("t", 0, 1, -1, "")]))
    assert world.shares.join("one", group_id="h").rejection == Rejection.UNKNOWN_GROUP
    producer = world.do(InitTransactionalProducer(START_MS, "tx", 10_000))
    world.do(AddOffsetsToTxn(START_MS, "tx", producer.producer_id, producer.producer_epoch, "pending"))
    assert world.shares.join("one", group_id="pending").rejection == Rejection.UNKNOWN_GROUP
    alter = AlterShareOffsets(START_MS, "h", [ShareOffset("t", 0, 0)])
    assert world.do(alter).rejection == Rejection.UNKNOWN_GROUP


def test_an_undeleted_topics_offsets_are_not_restored_to_a_share_group() -> None:
    world = share_world()
    world.topic("u", number=2, **{"penstock.undelete.window.ms": "7200000"})
    world.do(CommitOffsets(world.now_ms, "h", -1, "", None, [OffsetToCommit("u", 0, 1, -1, "")]))
    world.do(DeleteTopic(world.now_ms, "u", topic_id(2)))
    assert world.shares.join("one", group_id="h").rejection == Rejection.UNKNOWN_GROUP
    world.wait(DEFAULT_LIMITS.groups.group_idle_ms)
    assert world.shares.join("one", group_id="h").member_epoch == 1
    world.do(UndeleteTopic(world.now_ms, "u", topic_id(2)))
    assert "h" not in world.state.groups


def test_groups_are_listed_and_described() -> None:
    world = share_world("one")
    assert GroupSummary("g", "share", "Stable", is_share=True) in ask(world, "groups", GroupsQuery(0, [])).groups
    assert not ask(world, "groups", GroupsQuery(0, ["Empty"])).groups
    found, missing = ask(world, "share_groups", ShareGroupsQuery(0, ["g", "h"])).groups
    assert (found.state, found.epoch, found.assignor, missing.state) == ("Stable", 1, "simple", "")
    assert [(each.member_id, each.assigned, each.topics) for each in found.members] == [
        ("one", [TopicPartitions(T, [0])], ["t"])
    ]
    assert found.topic_names == [(T, "t")]
    world.shares.leave("one")
    assert ask(world, "share_groups", ShareGroupsQuery(0, ["g"])).groups[0].state == "Empty"


def test_only_a_group_without_members_is_deleted() -> None:
    world = share_world("one", records=3)
    world.shares.acquire("one")
    assert world.do(DeleteGroup(world.now_ms, "g")).rejection == Rejection.GROUP_NOT_EMPTY
    world.shares.leave("one")
    assert world.do(DeleteGroup(world.now_ms, "g")) == Done()
    assert not (world.state.share_groups or world.state.share_topics or world.state.share_record_count)


def test_a_group_starts_at_the_end_unless_it_is_configured_otherwise() -> None:
    world = share_world(records=5)
    world.shares.configure("latest", **{"share.auto.offset.reset": "latest"})
    world.shares.join("one", group_id="latest")
    world.shares.join("one")
    assert world.state.share_groups["latest"].partitions[T][0].start == 5
    assert world.shares.share.start == 0


def test_later_partitions_are_read_from_their_first_offset() -> None:
    world = share_world("one", **{"share.auto.offset.reset": "latest"})
    world.shares.leave("one")
    world.do(CreatePartitions(world.now_ms, "t", 2))
    world.produce(batch(3), partition=1)
    world.shares.join("one")
    assert world.shares.group.partitions[T][1].start == 0


def test_a_groups_position_survives_its_members() -> None:
    world = share_world("one", records=4)
    world.shares.acquire("one", 2)
    world.shares.acknowledge("one", 0, 1, AcknowledgeType.ACCEPT)
    world.shares.leave("one")
    world.shares.join("two")
    assert world.shares.acquire("two") == [(2, 3, 1)]


def test_positions_in_a_deleted_topic_are_removed_and_in_a_recoverable_one_are_kept() -> None:
    world = share_world("one", records=4)
    world.topic("u", number=2, **{"penstock.undelete.window.ms": "60000"})
    world.shares.heartbeat("one", 1, ["t", "u"])
    world.do(DeleteTopic(world.now_ms, "t", T))
    assert T not in world.shares.group.partitions
    world.do(DeleteTopic(world.now_ms, "u", topic_id(2)))
    assert topic_id(2) in world.shares.group.partitions
    world.wait(60_000)
    world.do(DropExtents(world.now_ms))
    assert not world.shares.group.partitions
    assert world.shares.heartbeat("one", 2).assignment == []


def test_an_empty_group_continues_from_the_altered_offsets() -> None:
    world = share_world("one", records=9)
    world.shares.acquire("one", 5)
    alter = AlterShareOffsets(
        world.now_ms, "g", [ShareOffset("t", 0, 2), ShareOffset("t", 1, 0), ShareOffset("x", 0, 0)]
    )
    assert world.do(alter).rejection == Rejection.GROUP_NOT_EMPTY
    world.shares.leave("one")
    assert world.do(alter) == PerItem([Rejection.NONE, Rejection.UNKNOWN_TOPIC, Rejection.UNKNOWN_TOPIC])
    (view,) = ask(world, "share_offsets", ShareOffsetsQuery(0, "g", None)).offsets
    assert (view.start_offset, view.lag) == (2, 7)
    world.shares.join("one")
    assert world.shares.acquire("one") == [(2, 8, 1)]


def test_altered_offsets_make_a_group_that_starts_there() -> None:
    world = share_world(records=9)
    assert world.do(AlterShareOffsets(world.now_ms, "g", [ShareOffset("t", 0, 7)])) == PerItem([Rejection.NONE])
    world.shares.join("one")
    assert world.shares.acquire("one") == [(7, 8, 1)]
    bad = AlterShareOffsets(world.now_ms, "bare", [ShareOffset("t", 0, -1)])
    assert world.do(bad) == PerItem([Rejection.OFFSET_OUT_OF_RANGE])
    assert "bare" not in world.state.share_groups


def test_a_group_whose_offsets_are_deleted_starts_anew() -> None:
    world = share_world("one", records=9)
    world.shares.acquire("one", 5)
    world.shares.acknowledge("one", 0, 4, AcknowledgeType.ACCEPT)
    delete = DeleteShareOffsets(world.now_ms, "g", ["t", "x"])
    assert world.do(delete).rejection == Rejection.GROUP_NOT_EMPTY
    world.shares.leave("one")
    assert world.do(delete) == PerItem([Rejection.NONE, Rejection.UNKNOWN_TOPIC])
    assert world.do(delete).rejection == Rejection.UNKNOWN_GROUP
    world.shares.join("one")
    assert world.shares.acquire("one") == [(0, 8, 1)]


def test_late_changes_of_offsets_are_rejected() -> None:
    world = share_world(records=9)
    seen = world.state.sequence
    world.do(AlterShareOffsets(world.now_ms, "g", [ShareOffset("t", 0, 7)], seen))
    late = AlterShareOffsets(world.now_ms, "g", [ShareOffset("t", 0, 1)], seen)
    assert world.do(late).rejection == Rejection.STALE
    assert world.do(DeleteGroup(world.now_ms, "g", seen)).rejection == Rejection.STALE


def test_groups_have_their_own_configurations() -> None:
    world = share_world("one", **{"share.heartbeat.interval.ms": "700"})
    assert world.shares.heartbeat("one", 1).heartbeat_interval_ms == 700
    configs = ask(world, "group_configs", GroupConfigsQuery(0, ["g", "h"])).configs
    assert configs[0].items() >= {"share.auto.offset.reset": "earliest", "share.heartbeat.interval.ms": "700"}.items()
    assert not configs[1]
    everything = ask(world, "group_configs", GroupConfigsQuery(0, []))
    assert (everything.group_ids, everything.configs) == (["g"], []), "the ids of ten thousand groups fit one message"
    assert world.shares.configure(**{"share.session.timeout.ms": "500"}).rejection == Rejection.INVALID_CONFIG
    assert world.shares.configure(**{"retention.ms": "1"}).rejection == Rejection.INVALID_CONFIG
    assert world.shares.configure(**{"share.heartbeat.interval.ms": "60000"}).rejection == Rejection.INVALID_CONFIG
    assert world.shares.configure("", **{"share.session.timeout.ms": "5000"}).rejection == Rejection.INVALID_REQUEST
    back = [ConfigChange(name, ConfigOperation.DELETE) for name in configs[0]]
    assert world.do(AlterGroupConfigs(world.now_ms, "g", back)) == Done()
    assert not world.state.group_configs


def test_changes_of_groups_configurations_are_validated_and_never_late() -> None:
    world = share_world("one")
    change = [ConfigChange("share.record.lock.duration.ms", ConfigOperation.SET, "15000")]
    commands = [AlterGroupConfigs(world.now_ms, "g", change), AlterGroupConfigs(world.now_ms, "", change)]
    good, bad = ask(world, "validate", ValidateQuery(0, [*commands])).outcomes
    assert (good, bad.rejection) == (Done(), Rejection.INVALID_REQUEST)
    assert "share.record.lock.duration.ms" not in world.state.group_configs["g"]
    late = AlterGroupConfigs(world.now_ms, "g", change, seen_sequence=0)
    assert world.do(late).rejection == Rejection.STALE


def test_restored_states_share_nothing() -> None:
    empty = encode_state(new_state())
    change = [ConfigChange("share.record.lock.duration.ms", ConfigOperation.SET, "15000")]
    apply_entry(decode_state(empty), 1, [[AlterGroupConfigs(START_MS, "g", change)]])
    assert decode_state(empty).group_configs == {}
