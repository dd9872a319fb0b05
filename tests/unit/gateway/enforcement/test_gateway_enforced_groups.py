"""Groups, offsets and transactions with access control: refused parts are answered, the others are served."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.contracts.acls import AclBinding, AclOperation, ResourceType
from penstock.contracts.commands import (
    CommitOffsets,
    ConsumerMembership,
    Outcome,
    PerItem,
    ProducerAllocated,
    TopicPartitions,
)
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.queries.consumer_groups import ConsumerHeartbeatView
from penstock.contracts.queries.groups import (
    CommittedOffset,
    GroupOffsetsQuery,
    GroupOffsetsView,
    GroupSummary,
    GroupsView,
)
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api import (
    add_partitions_to_txn as adding,
    consumer_group_heartbeat,
    delete_groups,
    heartbeat,
    init_producer_id,
    list_groups,
    offset_commit as committing,
    offset_fetch as fetching,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask
from tests.unit.gateway.security.security_fakes import FakeBindings, binding

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
ANONYMOUS = "User:ANONYMOUS"
TOPIC_REFUSED, GROUP_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
Allow = Callable[..., None]


@pytest.fixture
def bindings() -> FakeBindings:
    return FakeBindings()


@pytest.fixture
def allow(bindings: FakeBindings) -> Allow:
    def add(*rules: tuple[AclOperation, ResourceType, str]) -> None:
        found: list[AclBinding] = [binding(*rule, principal=ANONYMOUS) for rule in rules]
        bindings.set(*bindings.bindings, *found)

    return add


@pytest.fixture
def world(bindings: FakeBindings) -> World:
    world = new_world(bindings=bindings)
    world.sequencer.record_level(TRANSACTIONS_LEVEL)
    for name in ("mine", "theirs"):
        world.sequencer.add_topic(name, 2)
    world.sequencer.on_command = accepted
    return world


def accepted(command: Any) -> Outcome:
    if isinstance(command, CommitOffsets):
        return PerItem([Rejection.NONE] * len(command.offsets))
    return ProducerAllocated(7, 0)


async def commit(world: World) -> dict[str, list[int]]:
    both = [committing.OffsetCommitRequestPartition(number) for number in (0, 1)]
    topics = [committing.OffsetCommitRequestTopic(name, partitions=both) for name in ("mine", "theirs")]
    answer = await ask(world, 8, 8, committing.OffsetCommitRequest("g", topics=topics))
    return {topic.name: [each.error_code for each in topic.partitions] for topic in answer.topics}


async def test_a_commit_needs_the_group_and_each_topic(world: World, allow: Allow) -> None:
    assert await commit(world) == {"mine": [GROUP_REFUSED] * 2, "theirs": [GROUP_REFUSED] * 2}
    allow((READ, GROUP, "g"))
    assert await commit(world) == {"mine": [TOPIC_REFUSED] * 2, "theirs": [TOPIC_REFUSED] * 2}
    assert world.sequencer.commands == []
    allow((READ, TOPIC, "mine"))
    assert await commit(world) == {"mine": [0, 0], "theirs": [TOPIC_REFUSED] * 2}
    (((command),),) = world.sequencer.commands
    assert isinstance(command, CommitOffsets) and {each.topic for each in command.offsets} == {"mine"}


async def test_offsets_by_topic_id_need_the_same_rights_as_by_name(world: World, allow: Allow) -> None:
    allow((READ, GROUP, "g"), (READ, TOPIC, "mine"))
    ids = {world.sequencer.topics[name].topic_id: name for name in ("mine", "theirs")} | {b"unknown topic id": ""}
    partitions = [committing.OffsetCommitRequestPartition(0)]
    topics = [committing.OffsetCommitRequestTopic(topic_id=each, partitions=partitions) for each in ids]
    answer = await ask(world, 8, 10, committing.OffsetCommitRequest("g", topics=topics))
    errors = {ids[topic.topic_id]: topic.partitions[0].error_code for topic in answer.topics}
    assert errors == {"mine": 0, "theirs": TOPIC_REFUSED, "": ErrorCode.UNKNOWN_TOPIC_ID}
    asked = [fetching.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids]
    world.sequencer.views["group_offsets"] = lambda query: GroupOffsetsView(1, [CommittedOffset("mine", 0, 5, 0, "")])
    group = fetching.OffsetFetchRequestGroup("g", topics=asked)
    (found,) = (await ask(world, 9, 10, fetching.OffsetFetchRequest(groups=[group]))).groups
    errors = {ids[topic.topic_id]: topic.partitions[0].error_code for topic in found.topics}
    assert errors == {"mine": 0, "theirs": TOPIC_REFUSED, "": ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.fixture
def committed(world: World) -> None:
    def offsets(query: GroupOffsetsQuery) -> GroupOffsetsView:
        wanted = ["mine", "theirs"] if query.topics is None else [each.topic for each in query.topics]
        return GroupOffsetsView(1, [CommittedOffset(name, 0, 5, 0, "") for name in wanted])

    world.sequencer.views["group_offsets"] = offsets


async def fetched(world: World, version: int, topics: list[str] | None) -> Any:
    if version >= 8:
        asked = (
            None
            if topics is None
            else [fetching.OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in topics]
        )
        groups = [fetching.OffsetFetchRequestGroup(name, topics=asked) for name in ("h", "g")]
        return (await ask(world, 9, version, fetching.OffsetFetchRequest(groups=groups))).groups
    single = None if topics is None else [fetching.OffsetFetchRequestTopic(name, [0]) for name in topics]
    return await ask(world, 9, version, fetching.OffsetFetchRequest("g", single))


def offsets_in(answer: Any) -> dict[str, tuple[int, int]]:
    return {
        topic.name: (each.committed_offset, each.error_code) for topic in answer.topics for each in topic.partitions
    }


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize("version", [7, 8])
async def test_offsets_of_hidden_topics_are_refused_by_name_and_left_out_of_all(
    world: World, allow: Allow, version: int
) -> None:
    allow((DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "mine"))
    named, everything = await fetched(world, version, ["theirs", "mine"]), await fetched(world, version, None)
    if version >= 8:
        assert {group.group_id: group.error_code for group in named} == {"g": 0, "h": GROUP_REFUSED}
        (named,) = [group for group in named if group.group_id == "g"]
        (everything,) = [group for group in everything if group.group_id == "g"]
    assert offsets_in(named) == {"mine": (5, 0), "theirs": (-1, TOPIC_REFUSED)}
    assert offsets_in(everything) == {"mine": (5, 0)}


@pytest.mark.usefixtures("committed")
async def test_a_group_that_may_not_be_described_is_an_error_in_each_version(world: World) -> None:
    assert offsets_in(await fetched(world, 1, ["mine"])) == {"mine": (-1, GROUP_REFUSED)}
    assert (await fetched(world, 2, ["mine"])).error_code == GROUP_REFUSED


async def test_lists_of_groups_show_those_that_may_be_described(world: World, allow: Allow) -> None:
    groups = [GroupSummary(name, "consumer", "Empty") for name in ("g", "h")]
    world.sequencer.views["groups"] = lambda query: GroupsView(1, groups)
    allow((READ, GROUP, "g"))
    answer = await ask(world, 16, 4, list_groups.ListGroupsRequest())
    assert [group.group_id for group in answer.groups] == ["g"]
    allow((DESCRIBE, CLUSTER, "kafka-cluster"))
    answer = await ask(world, 16, 4, list_groups.ListGroupsRequest())
    assert [group.group_id for group in answer.groups] == ["g", "h"]


async def test_members_need_read_and_deletions_delete(world: World, allow: Allow) -> None:
    allow((DESCRIBE, GROUP, "g"))
    beat = await ask(world, 12, 4, heartbeat.HeartbeatRequest("g", 1, "m"))
    assert beat.error_code == GROUP_REFUSED
    gone = await ask(world, 42, 2, delete_groups.DeleteGroupsRequest(["g", "h"]))
    assert {each.group_id: each.error_code for each in gone.results} == {"g": GROUP_REFUSED, "h": GROUP_REFUSED}
    assert world.sequencer.commands == []


async def test_a_subscription_with_a_hidden_topic_is_refused(world: World, allow: Allow) -> None:
    allow((READ, GROUP, "g"), (DESCRIBE, TOPIC, "mine"))
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "m", rebalance_timeout_ms=1_000, subscribed_topic_names=["mine", "theirs"], topic_partitions=[]
    )
    answer = await ask(world, 68, 1, request)
    assert (answer.error_code, answer.error_message) == (TOPIC_REFUSED, "Topic authorization failed.")
    assert world.sequencer.commands == []


async def assigned(world: World, *topic_ids: bytes) -> list[bytes]:
    """The topics in the answer to a member whose pattern found these."""
    membership = ConsumerMembership("m", 3, 5_000, [TopicPartitions(each, [0]) for each in topic_ids])
    world.sequencer.views["consumer_heartbeat"] = lambda query: ConsumerHeartbeatView(1, membership)
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "m", 3, subscribed_topic_regex=".*")
    answer = await ask(world, 68, 1, request)
    assert answer.error_code == 0
    return [each.topic_id for each in answer.assignment.topic_partitions]


async def test_a_pattern_finds_only_topics_that_the_client_may_see(world: World, allow: Allow) -> None:
    mine, theirs = (world.sequencer.topics[name].topic_id for name in ("mine", "theirs"))
    allow((READ, GROUP, "g"))
    assert await assigned(world, mine, theirs) == []
    allow((DESCRIBE, TOPIC, "mine"))
    assert await assigned(world, mine, theirs) == [mine]
    assert await assigned(world, mine) == [mine]
    allow((READ, TOPIC, "theirs"))
    assert await assigned(world, mine, theirs) == [mine, theirs]


async def test_an_assigned_topic_that_is_not_found_stays(world: World, allow: Allow) -> None:
    allow((READ, GROUP, "g"))
    just_deleted = bytes(16)
    assert await assigned(world, just_deleted) == [just_deleted]


async def new_producer(world: World, transactional_id: str | None) -> int:
    error: int = (await ask(world, 22, 4, init_producer_id.InitProducerIdRequest(transactional_id, 60_000))).error_code
    return error


async def test_an_idempotent_producer_needs_some_topic_or_a_right_on_the_cluster(
    world: World, allow: Allow, bindings: FakeBindings
) -> None:
    assert await new_producer(world, None) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allow((AclOperation.IDEMPOTENT_WRITE, CLUSTER, "kafka-cluster"))
    assert await new_producer(world, None) == 0
    bindings.set(binding(WRITE, TOPIC, "any", principal=ANONYMOUS, prefixed=True))
    assert await new_producer(world, None) == 0
    assert await new_producer(world, "x") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allow((WRITE, TRANSACTIONAL_ID, "x"))
    assert await new_producer(world, "x") == 0


async def test_one_refused_topic_keeps_all_partitions_out_of_a_transaction(world: World, allow: Allow) -> None:
    allow((WRITE, TRANSACTIONAL_ID, "x"), (WRITE, TOPIC, "mine"))
    topics = [adding.AddPartitionsToTxnTopic(name, [0]) for name in ("mine", "theirs")]
    request = adding.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    answer = await ask(world, 24, 3, request)
    errors = {
        topic.name: [each.partition_error_code for each in topic.results_by_partition]
        for topic in answer.results_by_topic_v3_and_below
    }
    assert errors == {"mine": [ErrorCode.OPERATION_NOT_ATTEMPTED], "theirs": [TOPIC_REFUSED]}
    assert world.sequencer.commands == []
