"""The APIs of streams groups (KIP-1071): journaled heartbeats, internal topics, descriptions, and Kafka's errors."""

from typing import Any

import msgspec
import pytest

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.contracts.commands import (
    CreateTopic,
    EndpointPartitions,
    InternalTopic,
    Outcome,
    OwnedTasks,
    Rejected,
    StreamsHeartbeat,
    StreamsMembership,
    StreamsStatus,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicCreated,
    Topology,
)
from penstock.contracts.levels import STREAMS_GROUPS_LEVEL
from penstock.contracts.queries.groups import GroupSummary, GroupsView
from penstock.contracts.queries.streams_groups import (
    StreamsGroupsView,
    StreamsGroupView,
    StreamsHeartbeatView,
    StreamsMemberView,
)
from penstock.contracts.queries.topics import ValidateView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import streams_group_describe as described, streams_group_heartbeat as wire
from penstock.kafkawire.api.api_versions import ApiVersionsRequest, FinalizedFeatureKey
from penstock.kafkawire.api.list_groups import ListGroupsRequest
from penstock.kafkawire.api.streams_group_describe import StreamsGroupDescribeRequest
from penstock.kafkawire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.streams.topologies import topology_of
from tests.testkit.work import counted_work
from tests.unit.gateway.gateway_fakes import World, new_client, new_world
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.security.security_fakes import FakeBindings, binding

LIST, API_VERSIONS, HEARTBEAT, DESCRIBE = 16, 18, 88, 89
SUBTOPOLOGY = wire.Subtopology(
    "0",
    source_topics=["u", "t"],
    state_changelog_topics=[wire.TopicInfo("c", 0, 1, [wire.KeyValue("b", "2"), wire.KeyValue("a", "1")])],
    repartition_source_topics=[wire.TopicInfo("r")],
    repartition_sink_topics=["r"],
    copartition_groups=[wire.CopartitionGroup([1], [], [0])],
)
JOIN = StreamsGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    rack_id="rack",
    rebalance_timeout_ms=9_000,
    topology=wire.Topology(0, [SUBTOPOLOGY]),
    active_tasks=[],
    standby_tasks=[],
    warmup_tasks=[],
    process_id="p",
    user_endpoint=wire.Endpoint("h", 80),
    client_tags=[wire.KeyValue("zone", "a")],
)
STAY = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3)
TASKS = OwnedTasks([TaskIds("0", [0, 2])], [TaskIds("0", [1])])
UNCHANGED = StreamsMembership("m", 3, 5_000, [], None, 0, None, [])
JOINED = StreamsMembership("m", 3, 5_000, [], TASKS, 2, [EndpointPartitions("h", 80, [("t", [0])], [])], [])
CHANGELOG = InternalTopic("c", 4, 0, [("cleanup.policy", "compact")])
LACKING = StreamsMembership(
    "m", 3, 1_000, [(StreamsStatus.MISSING_INTERNAL_TOPICS, "missing: c")], None, 0, None, [CHANGELOG]
)


def topology(**fields: Any) -> wire.Topology:
    return wire.Topology(0, [wire.Subtopology("0", **fields)])


def answering(*asked: StreamsMembership | Rejected | None, journaled: Outcome = JOINED, **options: Any) -> World:
    """Sequencers that give these answers to queries, in order, and this outcome to the command."""
    world = new_world(**options)
    world.sequencer.seen_level = STREAMS_GROUPS_LEVEL
    answers = iter(asked)
    world.sequencer.views["streams_heartbeat"] = lambda query: StreamsHeartbeatView(1, next(answers))
    world.sequencer.on_command = lambda command: journaled
    return world


def work_of_topology(parts: int) -> int:
    sources = [wire.TopicInfo(f"r{number}") for number in range(parts)]
    groups = [wire.CopartitionGroup([], [], [0])] * parts
    with counted_work() as work:
        made = topology_of(topology(repartition_source_topics=sources, copartition_groups=groups))
    assert made.subtopologies[0].copartition_groups == [["r0"]] * parts
    return work.instructions


def test_the_work_for_a_topology_grows_with_its_parts_only() -> None:
    assert work_of_topology(800) < 6 * work_of_topology(200)


async def test_a_heartbeat_that_changes_nothing_is_not_journaled() -> None:
    world = answering(UNCHANGED)
    response = await ask(world, HEARTBEAT, 1, STAY)
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 3, 5_000)
    assert (response.active_tasks, response.standby_tasks, response.partitions_by_user_endpoint) == (None, None, None)
    assert (response.task_offset_interval_ms, response.acceptable_recovery_lag) == (60_000, 10_000)
    assert world.sequencer.commands == []


async def test_a_heartbeat_that_changes_something_is_journaled_with_sorted_lists() -> None:
    world = answering(None)
    world.sequencer.seen_sequence = 7
    response = await ask(world, HEARTBEAT, 1, JOIN)
    assert response.active_tasks == [wire.TaskIds("0", [0, 2])]
    assert response.standby_tasks == [wire.TaskIds("0", [1])]
    assert response.warmup_tasks == []
    assert response.partitions_by_user_endpoint == [
        wire.EndpointToPartitions(wire.Endpoint("h", 80), [wire.TopicPartition("t", [0])], [])
    ]
    ((command,),) = world.sequencer.commands
    assert isinstance(command, StreamsHeartbeat)
    changelog = InternalTopic("c", 0, 1, [("a", "1"), ("b", "2")])
    subtopology = Subtopology("0", ["t", "u"], ["r"], [changelog], [InternalTopic("r", 0, 0, [])], [["r", "t"]])
    assert command.topology == Topology(0, [subtopology])
    assert (command.owned, command.endpoint, command.client_tags) == (OwnedTasks([], []), ("h", 80), [("zone", "a")])
    assert (command.process_id, command.client_host, command.seen_sequence) == ("p", "/127.0.0.1", 7)


async def test_a_client_tag_that_is_sent_often_is_kept_once() -> None:
    world = answering(None)
    await ask(world, HEARTBEAT, 1, msgspec.structs.replace(JOIN, client_tags=[wire.KeyValue()] * 1_000))
    ((command,),) = world.sequencer.commands
    assert isinstance(command, StreamsHeartbeat)
    assert command.client_tags == [("", "")]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"active_tasks": []}, ErrorCode.INVALID_REQUEST),
        (
            {"active_tasks": [], "standby_tasks": [wire.TaskIds("0", [1] * 60_000)], "warmup_tasks": []},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"topology": topology(source_topics=["__penstock_audit"])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(source_topics=["a/b"])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(source_topic_regex=["a.*"])}, ErrorCode.INVALID_REQUEST),
        ({"topology": topology(copartition_groups=[wire.CopartitionGroup([1])])}, ErrorCode.INVALID_REQUEST),
        # Two bytes of a request name 249 characters of a command, and an empty group takes memory without a name.
        (
            {"topology": topology(source_topics=["t" * 249], copartition_groups=[wire.CopartitionGroup([0] * 5_000)])},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"topology": topology(copartition_groups=[wire.CopartitionGroup()] * 5_000)}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_wrong_request_does_not_reach_the_sequencers(changes: dict[str, Any], error: ErrorCode) -> None:
    world = answering()
    response = await ask(world, HEARTBEAT, 1, StreamsGroupHeartbeatRequest("g", "m", **changes))
    assert (response.error_code, bool(response.error_message)) == (error, True)
    assert (world.sequencer.commands, world.sequencer.queries) == ([], [])


@pytest.mark.parametrize(
    ("rejection", "error"),
    [
        (Rejection.UNKNOWN_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID),
        (Rejection.INVALID_TOPOLOGY, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (Rejection.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH),
        (Rejection.OVERLOADED, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_a_rejection_counts_if_a_fresh_query_confirms_it(rejection: Rejection, error: ErrorCode) -> None:
    rejected = Rejected(rejection, "why")
    world = answering(rejected, rejected)
    response = await ask(world, HEARTBEAT, 1, STAY)
    assert (response.error_code, response.error_message) == (error, "why")
    asked: list[Any] = [query for _, query in world.sequencer.queries]
    assert [query.fresh for query in asked] == [False, True]
    behind = answering(rejected, UNCHANGED)
    assert (await ask(behind, HEARTBEAT, 1, STAY)).error_code == 0


# Internal topics.


def created(world: World) -> list[CreateTopic]:
    return [command for (command,) in world.sequencer.commands if isinstance(command, CreateTopic)]


async def test_missing_internal_topics_are_created_with_their_configurations() -> None:
    world = answering(LACKING, journaled=TopicCreated(bytes(16), 4, {}))
    response = await ask(world, HEARTBEAT, 1, STAY)
    (command,) = created(world)
    assert (command.name, command.partitions, command.configs) == ("c", 4, {"cleanup.policy": "compact"})
    assert response.status == [wire.Status(StreamsStatus.MISSING_INTERNAL_TOPICS, "missing: c")]


async def test_a_topic_that_another_member_has_created_is_no_failure() -> None:
    world = answering(LACKING, journaled=Rejected(Rejection.TOPIC_EXISTS))
    (status,) = (await ask(world, HEARTBEAT, 1, STAY)).status
    assert status.status_detail == "missing: c"


async def test_a_failed_creation_stands_in_the_status() -> None:
    world = answering(LACKING, journaled=Rejected(Rejection.OVERLOADED, "too many topics"))
    (status,) = (await ask(world, HEARTBEAT, 1, STAY)).status
    assert status.status_detail == "missing: c; Creation failed: c (too many topics)."


async def test_a_topic_that_cannot_be_created_does_not_use_up_the_quota_of_the_others() -> None:
    topics = [InternalTopic("a", 100, 0, []), InternalTopic("b", 1, 0, [])]
    lacking = msgspec.structs.replace(LACKING, missing_topics=topics)
    world = answering(lacking, lacking)
    world.sequencer.set_quota("controller_mutation_rate", "1", user=None)
    await world.gateway.quotas.refresh()

    def make(command: Any) -> Outcome:
        made = TopicCreated(command.topic_id, command.partitions, {})
        return Rejected(Rejection.INVALID_TOPIC, "collides") if command.name == "a" else made

    world.sequencer.views["validate"] = lambda query: ValidateView(1, [make(each) for each in query.commands])
    world.sequencer.on_command = make
    (status,) = (await ask(world, HEARTBEAT, 1, STAY)).status
    assert status.status_detail == "missing: c; Creation failed: a (collides)."
    (status,) = (await ask(world, HEARTBEAT, 1, STAY)).status
    assert "throttling" not in status.status_detail, "only one partition was made"


async def test_topics_with_wrong_configurations_are_not_created() -> None:
    topic = InternalTopic("c", 4, 0, [("cleanup.policy", "shred")])
    lacking = StreamsMembership("m", 3, 1_000, LACKING.status, None, 0, None, [topic])
    world = answering(lacking)
    (status,) = (await ask(world, HEARTBEAT, 1, STAY)).status
    assert "Creation failed: c (cleanup.policy" in status.status_detail
    assert created(world) == []


# Access control.


READ, DESCRIBE_IT, CREATE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.CREATE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


def bound(*rules: tuple[AclOperation, ResourceType, str]) -> FakeBindings:
    bindings = FakeBindings()
    bindings.set(*(binding(*rule, principal="User:ANONYMOUS") for rule in rules))
    return bindings


async def test_members_need_read_on_the_group_and_describe_on_each_topic_of_the_topology() -> None:
    world = answering(bindings=bound())
    assert (await ask(world, HEARTBEAT, 1, STAY)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    some = [(DESCRIBE_IT, TOPIC, name) for name in ("t", "u", "c")]
    world = answering(bindings=bound((READ, GROUP, "g"), *some))
    assert (await ask(world, HEARTBEAT, 1, JOIN)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world = answering(None, bindings=bound((READ, GROUP, "g"), *some, (DESCRIBE_IT, TOPIC, "r")))
    assert (await ask(world, HEARTBEAT, 1, JOIN)).error_code == 0


async def test_internal_topics_need_create_on_the_cluster_or_on_each_topic() -> None:
    world = answering(LACKING, bindings=bound((READ, GROUP, "g")))
    (status,) = (await ask(world, HEARTBEAT, 1, STAY)).status
    assert status.status_detail == "missing: c; Unauthorized to CREATE on topics c."
    assert created(world) == []
    for rule in ((CREATE, TOPIC, "c"), (CREATE, CLUSTER, "kafka-cluster")):
        world = answering(LACKING, journaled=TopicCreated(bytes(16), 4, {}), bindings=bound((READ, GROUP, "g"), rule))
        await ask(world, HEARTBEAT, 1, STAY)
        assert [each.name for each in created(world)] == ["c"]


async def test_a_description_needs_describe_on_the_group_and_on_its_topics() -> None:
    group = StreamsGroupView("g", "Stable", 4, 4, 0, [Subtopology("0", ["t"], [], [CHANGELOG], [], [])], [])
    rules = ((DESCRIBE_IT, GROUP, "g"), (DESCRIBE_IT, TOPIC, "t"), (DESCRIBE_IT, TOPIC, "c"))
    errors = [ErrorCode.GROUP_AUTHORIZATION_FAILED, *[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2, ErrorCode.NONE]
    for count, error in enumerate(errors):
        world = describing(group, bindings=bound(*rules[:count]))
        (answer,) = (await ask(world, DESCRIBE, 1, StreamsGroupDescribeRequest(["g"]))).groups
        assert answer.error_code == error


# Descriptions, lists and features.


def describing(view: StreamsGroupView, **options: Any) -> World:
    world = answering(**options)
    world.sequencer.views["streams_groups"] = lambda query: StreamsGroupsView(1, [view])
    return world


async def test_a_description_has_topology_members_and_targets() -> None:
    subtopology = Subtopology("0", ["t"], [], [CHANGELOG], [], [])
    member = StreamsMemberView(
        "m", 3, None, "r", "c", "/h", 0, "p", ("h", 80), [("zone", "a")], [TaskOffset("0", 1, 5)], [], TASKS, TASKS
    )
    world = describing(StreamsGroupView("g", "Stable", 4, 4, 0, [subtopology], [member]))
    response = await ask(world, DESCRIBE, 1, StreamsGroupDescribeRequest(["g"], include_topology_description=True))
    (group,) = response.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 4, 4)
    assert (group.assignor_name, group.topology_description_status) == ("sticky", 1)
    changelog = described.TopicInfo("c", 4, 0, [described.KeyValue("cleanup.policy", "compact")])
    assert group.topology == described.Topology(0, [described.Subtopology("0", ["t"], [], [changelog], [])])
    (answer,) = group.members
    tasks = described.Assignment([described.TaskIds("0", [0, 2])], [described.TaskIds("0", [1])], [])
    assert (answer.assignment, answer.target_assignment) == (tasks, tasks)
    assert answer.user_endpoint == described.Endpoint("h", 80)
    assert answer.task_offsets == [described.TaskOffset("0", 1, 5)]


@pytest.mark.parametrize(
    ("is_other", "message"), [(False, "Group g not found."), (True, "Group g is not a streams group.")]
)
async def test_other_groups_are_not_described(is_other: bool, message: str) -> None:
    world = describing(StreamsGroupView("g", "", 0, 0, 0, [], [], is_other=is_other))
    (group,) = (await ask(world, DESCRIBE, 0, StreamsGroupDescribeRequest(["g"]))).groups
    assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, message)


async def test_groups_are_listed_with_their_type() -> None:
    world = answering()
    group = GroupSummary("g", "streams", "NotReady", is_streams=True)
    world.sequencer.views["groups"] = lambda query: GroupsView(1, [group])
    for types, count in (([], 1), (["Streams"], 1), (["consumer"], 0)):
        response = await ask(world, LIST, 5, ListGroupsRequest(types_filter=types))
        assert [(each.group_state, each.group_type) for each in response.groups] == [("NotReady", "streams")] * count


@pytest.mark.parametrize(("level", "is_there"), [(STREAMS_GROUPS_LEVEL, True), (STREAMS_GROUPS_LEVEL - 1, False)])
async def test_streams_groups_are_a_feature_once_all_sequencers_know_them(level: int, is_there: bool) -> None:
    world = answering(UNCHANGED)
    world.sequencer.seen_level = level
    response = await ask(world, API_VERSIONS, 4, ApiVersionsRequest())
    assert (FinalizedFeatureKey("streams.version", 1, 1) in response.finalized_features) == is_there
    heartbeat = await ask(world, HEARTBEAT, 1, STAY)
    assert heartbeat.error_code == (0 if is_there else ErrorCode.UNSUPPORTED_VERSION)
    if not is_there:
        (group,) = (await ask(world, DESCRIBE, 0, StreamsGroupDescribeRequest(["g"]))).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_unreachable_sequencers_are_a_retriable_error() -> None:
    world = answering()
    world.sequencer.is_down = True
    assert (await ask(world, HEARTBEAT, 1, STAY)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await ask(world, HEARTBEAT, 1, STAY, new_client())).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
