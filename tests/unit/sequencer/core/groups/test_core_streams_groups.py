"""Streams groups (KIP-1071): topologies and topics, each member's tasks and epochs, and the errors for wrong ones."""

from typing import Any

import pytest

from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AlterGroupConfigs,
    CommitTxnOffsets,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    DeleteGroup,
    Done,
    InitTransactionalProducer,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    OwnedTasks,
    RaiseLevel,
    Rejected,
    StreamsMembership,
    StreamsStatus,
    TaskIds,
    TaskOffset,
    Topology,
)
from penstock.contracts.levels import KEPT_TOPOLOGIES_LEVEL, STREAMS_GROUPS_LEVEL
from penstock.contracts.queries.groups import GroupOffsetsQuery, GroupsQuery
from penstock.contracts.queries.streams_groups import StreamsGroupsQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from tests.unit.sequencer.core.core_streams import (
    CHANGELOG,
    STATEFUL,
    STATELESS,
    StreamsClient,
    subtopology,
)
from tests.unit.sequencer.core.core_world import World

DELAY_MS = 3_000  # after the first member of an empty group


@pytest.fixture
def world() -> World:
    return streams_world(STREAMS_GROUPS_LEVEL)


def streams_world(level: int) -> World:
    world = World(level=level)
    world.topic(partitions=4)
    world.topic(CHANGELOG, partitions=4, number=2)
    return world


def configure(world: World, **configs: str) -> None:
    changes = [
        ConfigChange(f"streams.{name.replace('_', '.')}", ConfigOperation.SET, text) for name, text in configs.items()
    ]
    assert world.do(AlterGroupConfigs(world.now_ms, "g", changes)) == Done()


def rejection(answer: Any) -> Rejection:
    assert isinstance(answer, Rejected), answer
    return answer.rejection


def statuses(answer: StreamsMembership) -> list[int]:
    return [code for code, _ in answer.status]


def settled(world: World, *names: str) -> list[StreamsClient]:
    clients = [world.streams.client(name) for name in names]
    world.streams.settle(*clients)
    return clients


# Joins, targets and epochs.


def test_the_first_member_waits_for_others_and_gets_all_tasks_then(world: World) -> None:
    one = world.streams.client("one")
    assert one.active == {}
    answer = world.streams.beat(one)
    assert statuses(answer) == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert world.group().state == "Assigning"
    world.wait(DELAY_MS)
    assert world.streams.beat(one).tasks == OwnedTasks([TaskIds("0", [0, 1, 2, 3])], [])
    assert (world.group().state, statuses(world.streams.beat(one))) == ("Stable", [])


def test_members_that_come_in_time_share_the_tasks(world: World) -> None:
    one, two = settled(world, "one", "two")
    assert sorted(one.active["0"] + two.active["0"]) == [0, 1, 2, 3]
    assert len(one.active["0"]) == 2


def test_a_heartbeat_that_changes_nothing_is_not_journaled(world: World) -> None:
    (one,) = settled(world, "one")
    before = world.state.sequence
    answer = world.streams.beat(one)
    assert (answer.member_epoch, answer.tasks, answer.heartbeat_interval_ms) == (one.epoch, None, 5_000)
    assert world.streams.heartbeat("one", one.epoch, owned=one.owned).tasks is None
    assert world.state.sequence == before


def test_a_task_moves_only_when_its_owner_has_given_it_back(world: World) -> None:
    (one,) = settled(world, "one")
    two = world.streams.client("two")
    world.wait(1_000)
    assert world.streams.beat(two).tasks is None, "the other member has all tasks"
    kept = world.streams.beat(one)
    assert kept.tasks is not None
    assert kept.member_epoch == one.epoch < world.streams.group.epoch, "it keeps its epoch until it has given them back"
    assert world.streams.beat(two).tasks is None
    world.streams.beat(one)
    world.streams.beat(two)
    assert sorted(one.active["0"] + two.active["0"]) == [0, 1, 2, 3]
    assert world.group().state == "Stable"


def test_tasks_of_a_leaving_member_go_to_the_others(world: World) -> None:
    one, two = settled(world, "one", "two")
    left = world.streams.leave("two")
    assert (left.member_id, left.member_epoch) == ("two", -1)
    world.streams.settle(one)
    assert one.active == {"0": [0, 1, 2, 3]}
    assert rejection(world.streams.heartbeat("two", two.epoch)) == Rejection.UNKNOWN_MEMBER


def test_a_silent_member_is_removed(world: World) -> None:
    one, _ = settled(world, "one", "two")
    assert {each[1]: each[2] for each in queries.watched_members(world.state)} == {"one": 45_000, "two": 45_000}
    assert world.streams.expire("two") == Done()
    world.streams.settle(one)
    assert one.active == {"0": [0, 1, 2, 3]}


def test_a_member_that_does_not_give_back_within_its_rebalance_timeout_is_removed(world: World) -> None:
    slow = world.streams.client("slow", rebalance_timeout_ms=5_000)
    world.streams.settle(slow)
    two = world.streams.client("two")
    world.wait(1_000)
    world.streams.beat(two)
    world.streams.beat(slow)
    world.wait(4_999)
    assert "slow" in world.streams.group.members
    world.wait(1)
    assert [*world.streams.group.members] == ["two"]
    world.streams.settle(two)
    assert two.active == {"0": [0, 1, 2, 3]}


def test_a_member_with_another_epoch_is_fenced(world: World) -> None:
    (one,) = settled(world, "one")
    assert rejection(world.streams.heartbeat("one", one.epoch + 1)) == Rejection.FENCED_MEMBER_EPOCH
    assert rejection(world.streams.heartbeat("one", one.epoch - 1)) == Rejection.FENCED_MEMBER_EPOCH


def test_a_member_that_lost_an_answer_gets_it_again(world: World) -> None:
    one = world.streams.client("one")
    world.wait(DELAY_MS)
    lost = world.streams.heartbeat("one", one.epoch, owned=OwnedTasks([], []))
    again = world.streams.heartbeat("one", one.epoch, owned=OwnedTasks([], []))
    assert (again.member_epoch, again.tasks) == (lost.member_epoch, lost.tasks)
    assert again.tasks == OwnedTasks([TaskIds("0", [0, 1, 2, 3])], [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"owned": OwnedTasks([TaskIds("0", [0])], [])}, "ActiveTasks must be empty when (re-)joining."),
        ({"member_epoch": -3, "topology": None}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": -2, "topology": None}, "InstanceId can't be null."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
    ],
)
def test_wrong_requests_are_rejected_in_kafkas_words(world: World, changes: dict[str, Any], message: str) -> None:
    given = {"rebalance_timeout_ms": 1_000, "topology": STATEFUL, "member_id": "m"} | changes
    member_id, epoch = given.pop("member_id"), given.pop("member_epoch", 0)
    assert world.streams.heartbeat(member_id, epoch, **given) == Rejected(Rejection.INVALID_REQUEST, message)


def test_tasks_that_do_not_exist_are_rejected(world: World) -> None:
    (one,) = settled(world, "one")
    for tasks in (TaskIds("0", [4]), TaskIds("1", [0])):
        answer = world.streams.heartbeat("one", one.epoch, owned=OwnedTasks([tasks], []))
        assert rejection(answer) == Rejection.INVALID_REQUEST


def test_only_joins_make_a_group(world: World) -> None:
    assert rejection(world.streams.heartbeat("one", 5)) == Rejection.UNKNOWN_GROUP
    assert rejection(world.streams.leave("one")) == Rejection.UNKNOWN_GROUP


# Topologies and topics.


def test_missing_source_topics_are_reported_and_the_group_continues_when_they_come(world: World) -> None:
    topology = Topology(0, [subtopology("0", "absent")])
    one = world.streams.client("one", topology=topology)
    world.wait(DELAY_MS)
    answer = world.streams.beat(one)
    assert answer.status == [(StreamsStatus.MISSING_SOURCE_TOPICS, "Source topics absent are missing.")]
    assert (world.group().state, answer.missing_topics) == ("NotReady", [])
    world.topic("absent", partitions=2, number=3)
    world.streams.settle(one)
    assert one.active == {"0": [0, 1]}


def test_missing_internal_topics_are_listed_with_their_numbers_of_partitions(world: World) -> None:
    topology = Topology(
        0,
        [
            subtopology("0", "t", sinks=("g-r",)),
            subtopology("1", repartition={"g-r": 0}, changelogs=("g-c",)),
        ],
    )
    one = world.streams.client("one", topology=topology)
    answer = world.streams.beat(one)
    assert {topic.name: topic.partitions for topic in answer.missing_topics} == {"g-c": 4, "g-r": 4}
    assert StreamsStatus.MISSING_INTERNAL_TOPICS in statuses(answer)
    world.topic("g-r", partitions=4, number=3)
    world.topic("g-c", partitions=4, number=4)
    world.streams.settle(one)
    assert one.active == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}


def test_internal_topics_with_other_numbers_of_partitions_are_reported(world: World) -> None:
    topology = Topology(0, [subtopology("0", "t", changelogs=("wrong",))])
    world.topic("wrong", partitions=3, number=3)
    one = world.streams.client("one", topology=topology)
    (code, detail) = world.streams.beat(one).status[-1]
    assert code == StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == "Existing topic wrong has different number of partitions: expected 4, found 3"


def test_copartitioned_sources_need_the_same_number_of_partitions(world: World) -> None:
    world.topic("u", partitions=3, number=3)
    topology = Topology(0, [subtopology("0", "t", "u", copartition=(["t", "u"],))])
    one = world.streams.client("one", topology=topology)
    (code, detail) = world.streams.beat(one).status[-1]
    assert code == StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == "Following topics do not have the same number of partitions: [{t=4, u=3}]"


def test_a_repartition_topic_gets_the_number_of_its_copartition_group(world: World) -> None:
    world.topic("wide", partitions=6, number=3)
    copartition = (["g-r", "wide"],)
    topology = Topology(
        0,
        [
            subtopology("0", "t", sinks=("g-r",)),
            subtopology("1", "wide", repartition={"g-r": 0}, copartition=copartition),
        ],
    )
    one = world.streams.client("one", topology=topology)
    assert [(topic.name, topic.partitions) for topic in world.streams.beat(one).missing_topics] == [("g-r", 6)]


@pytest.mark.parametrize(
    ("subtopologies", "message"),
    [
        ([subtopology("0", "t"), subtopology("0", "t")], "Subtopology 0 occurs twice."),
        ([subtopology("0")], "No source topics found for subtopology 0"),
        (
            [subtopology("0", repartition={"a": 0}, sinks=("a",))],
            "Failed to compute number of partitions for all repartition topics. "
            "There may be loops in the topology that cannot be resolved.",
        ),
        (
            [subtopology("0", "t", repartition={"a": 0})],
            "Failed to compute number of partitions for all repartition topics, "
            "because a repartition source topic is never used as a sink topic.",
        ),
    ],
)
def test_topologies_that_no_topics_fit_are_rejected(world: World, subtopologies: list[Any], message: str) -> None:
    answer = world.streams.join("one", Topology(0, subtopologies))
    assert answer == Rejected(Rejection.INVALID_TOPOLOGY, message)
    assert "g" not in world.state.groups


def test_another_topology_is_rejected_and_an_older_one_is_reported_as_stale(world: World) -> None:
    world.streams.client("one", topology=Topology(1, STATELESS.subtopologies))
    answer = world.streams.join("two", Topology(2, STATEFUL.subtopologies))
    assert answer == Rejected(Rejection.INVALID_REQUEST, "Topology updates are not supported yet.")
    assert StreamsStatus.STALE_TOPOLOGY in statuses(world.streams.join("three", STATEFUL))


def test_more_partitions_of_a_source_are_reported_until_the_changelog_has_them(world: World) -> None:
    (one,) = settled(world, "one")
    world.do(CreatePartitions(world.now_ms, "t", 5))
    assert statuses(world.streams.beat(one))[-1:] == [StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]
    world.do(CreatePartitions(world.now_ms, CHANGELOG, 5))
    world.streams.settle(one)
    assert one.active == {"0": [0, 1, 2, 3, 4]}


# Standby tasks, static members, configurations.


def test_standby_tasks_are_on_another_process(world: World) -> None:
    configure(world, num_standby_replicas="1")
    one, two = settled(world, "one", "two")
    assert sorted(one.active["0"] + one.standby["0"]) == [0, 1, 2, 3]
    assert (one.standby["0"], two.standby["0"]) == (two.active["0"], one.active["0"])


def test_a_member_that_moves_to_another_process_learns_that_it_lost_standby_tasks(world: World) -> None:
    configure(world, num_standby_replicas="2", assignment_interval_ms="15000")
    clients = settled(world, "one", "two", "three")
    one, two, _ = clients
    shared = {*one.standby["0"]} & {*two.standby["0"]}
    assert shared
    answer = world.streams.beat(one, process_id=two.process)
    assert answer.tasks is not None
    assert not shared & {number for each in answer.tasks.standby for number in each.partitions}


def test_a_member_that_loses_all_that_it_was_to_give_back_moves_on(world: World) -> None:
    configure(world, num_standby_replicas="2", assignment_interval_ms="0")
    clients = settled(world, "one", "two", "three")
    configure(world, num_standby_replicas="1")
    for client in clients:
        world.streams.beat(client, owned=None)
    moving = next(each for each in clients if world.streams.member(each.name).revoking_standby)
    numbers = world.streams.member(moving.name).revoking_standby["0"]
    other = next(each for each in clients if each is not moving and {*numbers} <= {*each.standby["0"]})
    world.streams.beat(moving, process_id=other.process, owned=None)
    world.streams.settle(*clients)


def test_members_of_one_process_have_no_standby_tasks(world: World) -> None:
    configure(world, num_standby_replicas="2")
    clients = [world.streams.client(name, process="p") for name in ("one", "two")]
    world.streams.settle(*clients)
    assert [client.standby for client in clients] == [{}, {}]


def test_a_standby_task_becomes_active_where_it_is_when_the_active_one_is_lost(world: World) -> None:
    configure(world, num_standby_replicas="1")
    one, two, three = settled(world, "one", "two", "three")
    lost = list(two.active["0"])
    world.streams.expire("two")
    replicas = {number: client for client in (one, three) for number in client.standby.get("0", []) if number in lost}
    world.streams.settle(one, three)
    assert all(number in client.active["0"] for number, client in replicas.items())
    assert replicas


def test_stateless_tasks_have_no_standby(world: World) -> None:
    configure(world, num_standby_replicas="1")
    clients = [world.streams.client(name, topology=STATELESS) for name in ("one", "two")]
    world.streams.settle(*clients)
    assert [client.standby for client in clients] == [{}, {}]


def test_reported_offsets_decide_where_a_free_task_goes(world: World) -> None:
    one, two, three = settled(world, "one", "two", "three")
    (number, *_) = two.active["0"]
    world.streams.beat(three, task_offsets=[TaskOffset("0", number, 100)])
    world.streams.expire("two")
    world.streams.settle(one, three)
    assert number in three.active["0"]


def test_a_static_member_that_comes_back_has_its_tasks_again(world: World) -> None:
    one, two = world.streams.client("one", instance_id="a"), world.streams.client("two", instance_id="b")
    world.streams.settle(one, two)
    before, epoch = one.active, world.streams.group.epoch
    assert world.streams.heartbeat("one", -2, instance_id="a").member_epoch == -2
    world.streams.beat(two)
    again = world.streams.client("again", process="one", instance_id="a")
    assert (again.active, world.streams.group.epoch) == (before, epoch)
    assert rejection(world.streams.heartbeat("one", one.epoch, instance_id="a")) == Rejection.FENCED_INSTANCE


def test_a_static_member_in_use_is_not_replaced(world: World) -> None:
    world.streams.client("one", instance_id="a")
    assert rejection(world.streams.join("two", instance_id="a")) == Rejection.UNRELEASED_INSTANCE


def test_one_member_can_stop_the_whole_application(world: World) -> None:
    one, two = settled(world, "one", "two")
    world.streams.beat(one, shuts_down=True)
    detail = "Streams group member one encountered a fatal error and requested a shutdown for the entire application."
    assert world.streams.beat(two).status == [(StreamsStatus.SHUTDOWN_APPLICATION, detail)]


def test_members_learn_where_each_process_has_its_tasks(world: World) -> None:
    one = world.streams.client("one", endpoint=("host", 80))
    world.streams.settle(one)
    answer = world.streams.beat(one)
    (endpoint,) = answer.endpoints
    assert (endpoint.host, endpoint.port, endpoint.active) == ("host", 80, [("t", [0, 1, 2, 3])])
    assert world.streams.beat(one, endpoint_epoch=answer.endpoint_epoch).endpoints is None


def test_a_source_that_a_topology_names_often_is_listed_once_for_each_endpoint(world: World) -> None:
    topology = Topology(0, [subtopology("0", *["t"] * 1_000)])
    one = world.streams.client("one", endpoint=("host", 80), topology=topology)
    world.streams.settle(one)
    (endpoint,) = world.streams.beat(one, endpoint_epoch=-1).endpoints
    assert endpoint.active == [("t", [0, 1, 2, 3])]


# Other commands with the group.


def commit(world: World, partition: int, epoch: int, member_id: str = "one") -> Any:
    answer = world.commit_offset(partition=partition, generation=epoch, member_id=member_id)
    return answer.rejection if isinstance(answer, Rejected) else answer.rejections[0]


def test_offsets_need_a_member_with_an_epoch_at_which_it_had_the_task(world: World) -> None:
    one, two = settled(world, "one", "two")
    old = one.epoch
    world.streams.leave("two")
    world.streams.settle(one)
    assert one.epoch > old
    assert commit(world, 0, one.epoch) == Rejection.NONE
    kept = next(number for number in range(4) if number not in two.active["0"])
    new = two.active["0"][0]
    assert commit(world, kept, old) == Rejection.NONE, "KIP-1251"
    assert commit(world, new, old) == Rejection.STALE_MEMBER_EPOCH
    assert commit(world, kept, one.epoch + 1) == Rejection.STALE_MEMBER_EPOCH
    assert commit(world, kept, one.epoch, "two") == Rejection.UNKNOWN_MEMBER


def test_offsets_are_read_by_members_and_administrators(world: World) -> None:
    (one,) = settled(world, "one")
    assert commit(world, 1, one.epoch) == Rejection.NONE

    def read(epoch: int, member_id: str | None) -> Rejection:
        query = GroupOffsetsQuery(0, "g", None, member_id=member_id, member_epoch=epoch)
        return Rejection(queries.QUERIES["group_offsets"](world.state, query).rejection)

    assert read(-1, None) == read(one.epoch, "one") == Rejection.NONE
    assert read(one.epoch - 1, "one") == Rejection.STALE_MEMBER_EPOCH
    assert read(1, "nobody") == Rejection.UNKNOWN_MEMBER


def test_transactions_commit_offsets_only_for_a_member_with_the_task(world: World) -> None:
    one, two = settled(world, "one", "two")
    producer = world.do(InitTransactionalProducer(world.now_ms, "x", 60_000))
    ids = (producer.producer_id, producer.producer_epoch)
    world.do(AddOffsetsToTxn(world.now_ms, "x", *ids, "g"))

    def store(partition: int, member: StreamsClient, epoch: int) -> Any:
        items = [OffsetToCommit("t", partition, 7, 0, "")]
        command = CommitTxnOffsets(world.now_ms, "x", *ids, "g", epoch, member.name, None, items)
        answer = world.do(command)
        return answer.rejection if isinstance(answer, Rejected) else answer.rejections[0]

    mine, epoch = one.active["0"][0], one.epoch
    assert store(mine, one, epoch) == Rejection.NONE
    world.streams.expire("two")
    world.streams.settle(one)
    assert store(mine, one, epoch) == Rejection.NONE
    assert store(two.active["0"][0], one, epoch) == Rejection.STALE_MEMBER_EPOCH
    assert store(two.active["0"][0], two, two.epoch) == Rejection.UNKNOWN_MEMBER


def test_groups_of_other_kinds_and_streams_groups_exclude_each_other(world: World) -> None:
    (one,) = settled(world, "one")
    assert rejection(world.consumers.join("m", "t")) == Rejection.UNKNOWN_GROUP
    assert rejection(world.classic.join("m")) == Rejection.INCONSISTENT_PROTOCOL
    assert rejection(world.do(DeleteGroup(world.now_ms, "g"))) == Rejection.GROUP_NOT_EMPTY
    (summary,) = queries.QUERIES["groups"](world.state, GroupsQuery(0, [])).groups
    assert (summary.is_streams, summary.protocol_type, summary.state) == (True, "streams", "Stable")
    world.streams.leave("one")
    assert world.do(DeleteGroup(world.now_ms, "g")) == Done()
    assert world.state.group_bytes == 0
    world.consumers.join("m", "t")
    assert rejection(world.streams.join("one")) == Rejection.UNKNOWN_GROUP
    assert one.epoch


def test_an_empty_streams_group_becomes_a_classic_one_and_back(world: World) -> None:
    settled(world, "one")
    world.streams.leave("one")
    world.classic.join("m")
    assert world.group().streams is None
    assert rejection(world.streams.join("one")) == Rejection.UNKNOWN_GROUP
    (member_id,) = world.group().members
    world.do(LeaveGroup(world.now_ms, "g", [LeavingMember(member_id, None)]))
    world.wait(10_000)
    assert world.group().state == "Empty"
    settled(world, "one")
    assert world.group().state == "Stable"


@pytest.mark.parametrize("level", [KEPT_TOPOLOGIES_LEVEL - 1, KEPT_TOPOLOGIES_LEVEL])
def test_a_rejected_classic_join_leaves_an_empty_streams_group_as_it_is(level: int) -> None:
    world = streams_world(level)
    settled(world, "one")
    world.streams.leave("one")
    before = (world.group().streams, world.state.group_bytes)
    assert rejection(world.classic.join("m", protocols={})) == Rejection.INCONSISTENT_PROTOCOL
    assert rejection(world.classic.join("m", member_id="absent")) == Rejection.UNKNOWN_MEMBER
    is_kept = (world.group().streams, world.state.group_bytes) == before
    assert is_kept == (level >= KEPT_TOPOLOGIES_LEVEL)


@pytest.mark.parametrize("level", [KEPT_TOPOLOGIES_LEVEL - 1, KEPT_TOPOLOGIES_LEVEL])
def test_a_rejected_classic_join_leaves_an_empty_consumer_group_as_it_is(level: int) -> None:
    world = streams_world(level)
    world.consumers.join("one", "t")
    world.consumers.leave("one")
    before = world.group().consumer
    assert rejection(world.classic.join("m", member_id="absent")) == Rejection.UNKNOWN_MEMBER
    assert (world.group().consumer is before) == (level >= KEPT_TOPOLOGIES_LEVEL)


@pytest.mark.parametrize("level", [KEPT_TOPOLOGIES_LEVEL - 1, KEPT_TOPOLOGIES_LEVEL])
def test_a_pending_classic_member_makes_an_empty_streams_group_one_without_a_protocol_type(level: int) -> None:
    world = streams_world(level)
    settled(world, "one")
    world.streams.leave("one")
    world.classic.join("m", require_known_member=True)
    (summary,) = queries.QUERIES["groups"](world.state, GroupsQuery(0, [])).groups
    assert not summary.is_streams
    assert summary.protocol_type == ("streams" if level < KEPT_TOPOLOGIES_LEVEL else "")


def test_a_description_has_topology_members_and_targets(world: World) -> None:
    (one,) = settled(world, "one")
    view, absent = queries.QUERIES["streams_groups"](world.state, StreamsGroupsQuery(0, ["g", "absent"])).groups
    assert (view.state, view.epoch, view.assignment_epoch, view.topology_epoch) == ("Stable", one.epoch, one.epoch, 0)
    ((changelog,),) = [each.changelog_topics for each in view.subtopologies]
    assert (changelog.name, changelog.partitions) == (CHANGELOG, 4)
    (member,) = view.members
    assert member.assigned == member.target == OwnedTasks([TaskIds("0", [0, 1, 2, 3])], [])
    assert (absent.state, absent.is_other) == ("", False)


def test_a_snapshot_has_the_whole_group(world: World) -> None:
    configure(world, num_standby_replicas="1")
    one, two = settled(world, "one", "two")
    world.streams.client("three", instance_id="i", endpoint=("h", 1), client_tags=[("zone", "a")])
    world.wait(1_000)
    for client in (two, one):
        world.streams.beat(client)
    data = encode_state(world.state)
    read = decode_state(data)
    assert encode_state(read) == data
    for check in world.on_entry:
        check(read)


def test_below_the_level_there_are_no_streams_groups() -> None:
    world = World(level=STREAMS_GROUPS_LEVEL - 1)
    world.topic(partitions=1)
    assert rejection(world.streams.join("one")) == Rejection.UNSUPPORTED_YET
    change = ConfigChange("streams.num.standby.replicas", ConfigOperation.SET, "1")
    assert rejection(world.do(AlterGroupConfigs(world.now_ms, "g", [change]))) == Rejection.INVALID_CONFIG
    world.do(RaiseLevel(world.now_ms, STREAMS_GROUPS_LEVEL))
    assert world.do(AlterGroupConfigs(world.now_ms, "g", [change])) == Done()
