"""The transaction APIs: the commands to the sequencers, and Kafka's errors for their outcomes, in every version."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Command,
    CommitTxnOffsets,
    Done,
    EndTxn,
    InitTransactionalProducer,
    OffsetToCommit,
    Outcome,
    PerItem,
    ProducerAllocated,
    Rejected,
    TransactionEnded,
    TransactionPartition,
)
from penstock.contracts.commands.group_sizes import OFFSET_METADATA_BYTES_MAX, TRANSACTIONAL_ID_LENGTH_MAX
from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.contracts.queries.groups import CommittedOffset, GroupOffsetsView
from penstock.contracts.queries.transactions import (
    DescribeTransactionsView,
    PartitionProducers,
    ProducersView,
    ProducerView,
    TransactionSummary,
    TransactionsView,
    TransactionTopic,
    TransactionView,
)
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.kafkawire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.kafkawire.api.api_versions import (
    ApiVersionsRequest,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from penstock.kafkawire.api.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from penstock.kafkawire.api.describe_transactions import DescribeTransactionsRequest, TopicData
from penstock.kafkawire.api.end_txn import EndTxnRequest
from penstock.kafkawire.api.find_coordinator import FindCoordinatorRequest
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest
from penstock.kafkawire.api.list_transactions import ListTransactionsRequest, TransactionState
from penstock.kafkawire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.kafka.feature_levels import LEVEL_TIMEOUT_S
from tests.unit.gateway.gateway_fakes import World, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask, batch

PRODUCE, OFFSET_FETCH, FIND_COORDINATOR, API_VERSIONS, INIT = 0, 9, 10, 18, 22
ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 24, 25, 26, 28
DESCRIBE_PRODUCERS, DESCRIBE, LIST = 61, 65, 66
SEEN = 45  # the newest entry that the gateway has seen


def answering(outcome: Outcome | Callable[[Command], Outcome]) -> World:
    world = new_world()
    world.sequencer.add_topic("t", 2)
    world.sequencer.record_sequence(SEEN)
    world.sequencer.on_command = outcome if callable(outcome) else lambda command: outcome
    return world


def sent(world: World) -> Any:
    """The one command that the sequencers got."""
    ((command,),) = world.sequencer.commands
    return command


def adding(*partitions: int, topic: str = "t") -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
    return AddPartitionsToTxnRequest([], "tx", 7, 3, topics)


def committing(offset: int = 5) -> TxnOffsetCommitRequest:
    topics = [TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(1, offset, 4, "m")])]
    return TxnOffsetCommitRequest("tx", "g", 7, 3, 2, "m-1", "i-1", topics)


async def test_offsets_by_topic_id_are_committed_by_name_with_the_id_along() -> None:
    world = new_world()
    world.sequencer.record_level(TRANSACTIONS_LEVEL)
    world.sequencer.on_command = lambda command: PerItem([Rejection.NONE] * len(command.offsets))
    known, unknown = world.sequencer.add_topic("t").topic_id, b"unknown topic id"
    partitions = [TxnOffsetCommitRequestPartition(1, 5)]
    topics = [TxnOffsetCommitRequestTopic(topic_id=each, partitions=partitions) for each in (known, unknown)]
    response = await ask(world, COMMIT_OFFSETS, 6, TxnOffsetCommitRequest("tx", "g", 7, 3, topics=topics))
    answered = [(topic.topic_id, topic.partitions[0].error_code) for topic in response.topics]
    assert answered == [(known, 0), (unknown, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert [each.topic for each in sent(world).offsets] == ["t"] and sent(world).topic_ids == {"t": known}
    assert sent(world).adds


async def error_of_init(world: World, version: int) -> int:
    return (await ask(world, INIT, version, InitProducerIdRequest("tx", 1_000))).error_code


async def error_of_adding(world: World, version: int) -> int:
    response = await ask(world, ADD_PARTITIONS, version, adding(0))
    return response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


async def error_of_offsets(world: World, version: int) -> int:
    return (await ask(world, ADD_OFFSETS, version, AddOffsetsToTxnRequest("tx", 7, 3, "g"))).error_code


async def error_of_end(world: World, version: int) -> int:
    return (await ask(world, END, version, EndTxnRequest("tx", 7, 3, True))).error_code


async def error_of_commit(world: World, version: int) -> int:
    response = await ask(world, COMMIT_OFFSETS, version, committing())
    return response.topics[0].partitions[0].error_code


async def error_of_finding(world: World, version: int) -> int:
    asked = FindCoordinatorRequest("tx", 1, ["tx"])
    response = await ask(world, FIND_COORDINATOR, version, asked)
    return response.coordinators[0].error_code if version >= 4 else response.error_code


COMMANDS = [error_of_init, error_of_adding, error_of_offsets, error_of_end, error_of_commit]
FENCED, OLD = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_gets_the_id_and_epoch_of_the_sequencers(version: int) -> None:
    world = answering(ProducerAllocated(7, 3))
    response = await ask(world, INIT, version, InitProducerIdRequest("tx", 1_000, 6, 2))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 7, 3)
    known = (6, 2) if version >= 3 else (-1, -1)
    assert sent(world) == InitTransactionalProducer(world.clock.now_ms(), "tx", 1_000, *known, SEEN)


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_by_their_topics_ids(version: int) -> None:
    world = answering(PerItem([Rejection.NONE] * 2))
    response = await ask(world, ADD_PARTITIONS, version, adding(1, 0))
    results = response.results_by_topic_v3_and_below[0].results_by_partition
    assert [(each.partition_index, each.partition_error_code) for each in results] == [(1, 0), (0, 0)]
    topic_id = world.sequencer.topics["t"].topic_id
    partitions = [TransactionPartition(topic_id, 1), TransactionPartition(topic_id, 0)]
    assert sent(world) == AddPartitionsToTxn(world.clock.now_ms(), "tx", 7, 3, partitions, SEEN)


async def test_if_one_partition_does_not_exist_none_is_added() -> None:
    world = answering(PerItem([]))
    response = await ask(world, ADD_PARTITIONS, 3, adding(0, 2))
    results = response.results_by_topic_v3_and_below[0].results_by_partition
    assert [each.partition_error_code for each in results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert not world.sequencer.commands


async def test_a_topic_deleted_during_the_request_is_removed_from_the_cache() -> None:
    world = answering(PerItem([Rejection.UNKNOWN_TOPIC, Rejection.NONE]))
    response = await ask(world, ADD_PARTITIONS, 3, adding(0, 1))
    results = response.results_by_topic_v3_and_below[0].results_by_partition
    assert [each.partition_error_code for each in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]
    assert world.gateway.topics.cached("t") is None


@pytest.mark.parametrize("version", [4, 5])
async def test_versions_between_brokers_get_kafkas_error_for_clients(version: int) -> None:
    request = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("tx", 7, 3)])
    response = await ask(answering(Done()), ADD_PARTITIONS, version, request)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(5))
async def test_a_group_is_added(version: int) -> None:
    world = answering(Done())
    assert await error_of_offsets(world, version) == 0
    assert sent(world) == AddOffsetsToTxn(world.clock.now_ms(), "tx", 7, 3, "g", SEEN)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_ends_and_from_version_5_on_with_another_epoch(version: int, committed: bool) -> None:
    world = answering(TransactionEnded(7, 4))
    response = await ask(world, END, version, EndTxnRequest("tx", 7, 3, committed))
    assert response.error_code == 0
    assert (response.producer_id, response.producer_epoch) == ((7, 4) if version >= 5 else (-1, -1))
    assert sent(world) == EndTxn(world.clock.now_ms(), "tx", 7, 3, committed, version >= 5, SEEN)


@pytest.mark.parametrize("version", range(6))
async def test_offsets_are_sent_with_the_member_that_the_version_names(version: int) -> None:
    world = answering(PerItem([Rejection.NONE]))
    assert await error_of_commit(world, version) == 0
    who = (2, "m-1", "i-1") if version >= 3 else (-1, "", None)
    offset = OffsetToCommit("t", 1, 5, 4 if version >= 2 else -1, "m")
    expected = CommitTxnOffsets(world.clock.now_ms(), "tx", 7, 3, "g", *who, [offset], version >= 5, SEEN)
    assert sent(world) == expected


async def test_an_offset_with_long_metadata_is_rejected_before_it_reaches_the_sequencers() -> None:
    world = answering(PerItem([Rejection.UNKNOWN_TOPIC]))
    long = "m" * (OFFSET_METADATA_BYTES_MAX + 1)
    partitions = [TxnOffsetCommitRequestPartition(0, 5, 4, long), TxnOffsetCommitRequestPartition(1, 6, 4, long[1:])]
    request = TxnOffsetCommitRequest("tx", "g", 7, 3, topics=[TxnOffsetCommitRequestTopic("t", partitions=partitions)])
    response = await ask(world, COMMIT_OFFSETS, 5, request)
    assert [(each.partition_index, each.error_code) for each in response.topics[0].partitions] == [
        (0, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [each.partition for each in sent(world).offsets] == [1]


async def test_a_commit_of_offsets_with_long_metadata_only_sends_no_command() -> None:
    world = answering(PerItem([]))
    partition = TxnOffsetCommitRequestPartition(0, 5, 4, "m" * (OFFSET_METADATA_BYTES_MAX + 1))
    request = TxnOffsetCommitRequest("tx", "g", 7, 3, topics=[TxnOffsetCommitRequestTopic("t", partitions=[partition])])
    response = await ask(world, COMMIT_OFFSETS, 5, request)
    assert response.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not world.sequencer.commands


async def test_names_that_are_too_long_are_rejected_before_they_reach_the_sequencers() -> None:
    world = answering(Done())
    long = "x" * (TRANSACTIONAL_ID_LENGTH_MAX + 1)
    init = await ask(world, INIT, 5, InitProducerIdRequest(long, 1_000))
    assert init.error_code == ErrorCode.INVALID_REQUEST
    ended = await ask(world, END, 4, EndTxnRequest(long, 7, 3, True))
    assert ended.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    added = await ask(world, ADD_OFFSETS, 3, AddOffsetsToTxnRequest("tx", 7, 3, long))
    assert added.error_code == ErrorCode.INVALID_GROUP_ID
    assert not world.sequencer.commands


@pytest.mark.parametrize(
    ("ask_error", "errors"),
    [
        (error_of_init, [OLD] * 4 + [FENCED] * 2),
        (error_of_adding, [OLD] * 2 + [FENCED] * 2),
        (error_of_offsets, [OLD] * 2 + [FENCED] * 3),
        (error_of_end, [OLD] * 2 + [FENCED] * 4),
        (error_of_commit, [OLD] * 6),
    ],
)
async def test_a_fenced_producer_gets_the_error_of_its_version(ask_error: Any, errors: list[ErrorCode]) -> None:
    for version, error in enumerate(errors):
        assert await ask_error(answering(Rejected(Rejection.PRODUCER_FENCED)), version) == error


@pytest.mark.parametrize("ask_error", COMMANDS)
@pytest.mark.parametrize(
    ("rejection", "error"),
    [
        (Rejection.STALE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (Rejection.OVERLOADED, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Rejection.INVALID_PRODUCER_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Rejection.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (Rejection.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_rejections_have_kafkas_codes(ask_error: Any, rejection: Rejection, error: ErrorCode) -> None:
    assert await ask_error(answering(Rejected(rejection)), 3) == error


@pytest.mark.parametrize(
    ("rejection", "version", "error"),
    [
        (Rejection.INVALID_TXN_STATE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (Rejection.STALE, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Rejection.STALE, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (Rejection.ILLEGAL_GENERATION, 3, ErrorCode.ILLEGAL_GENERATION),
        (Rejection.STALE_MEMBER_EPOCH, 5, ErrorCode.ILLEGAL_GENERATION),
        (Rejection.UNKNOWN_MEMBER, 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (Rejection.FENCED_INSTANCE, 3, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
async def test_rejected_offsets_get_an_error_that_the_version_knows(
    rejection: Rejection, version: int, error: ErrorCode
) -> None:
    assert await error_of_commit(answering(Rejected(rejection)), version) == error
    assert await error_of_commit(answering(PerItem([rejection])), version) == error


@pytest.mark.parametrize("ask_error", [*COMMANDS, error_of_finding])
@pytest.mark.parametrize(
    ("level", "error"),
    [
        (None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (TRANSACTIONS_LEVEL - 1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_nothing_is_journaled_while_some_sequencer_may_not_know_transactions(
    ask_error: Any, level: int | None, error: ErrorCode
) -> None:
    world = answering(Done())
    world.sequencer.seen_level = level
    assert await ask_error(world, 3) == error
    assert not world.sequencer.commands


@pytest.mark.parametrize("ask_error", [*COMMANDS, error_of_finding])
async def test_while_the_level_may_rise_clients_get_a_retriable_error(ask_error: Any) -> None:
    """A new cluster has no level yet, and the other error would be final."""
    world = answering(Done())
    world.sequencer.seen_level = 0
    world.sequencer.level_seen_s = world.clock.monotonic_s() - LEVEL_TIMEOUT_S + 0.01
    assert await ask_error(world, 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.sequencer.level_seen_s -= 0.02
    assert await ask_error(world, 3) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_an_empty_transactional_id_is_rejected() -> None:
    world = answering(Done())
    world.sequencer.views["describe_transactions"] = lambda query: DescribeTransactionsView(
        1, [TransactionView("", "Dead")]
    )
    assert (await ask(world, END, 3, EndTxnRequest("", 7, 3))).error_code == ErrorCode.INVALID_REQUEST
    assert (await ask(world, ADD_OFFSETS, 3, AddOffsetsToTxnRequest("", 7, 3))).error_code == ErrorCode.INVALID_REQUEST
    described = await ask(world, DESCRIBE, 0, DescribeTransactionsRequest([""]))
    assert described.transaction_states[0].error_code == ErrorCode.INVALID_REQUEST
    assert not world.sequencer.commands


@pytest.mark.parametrize("ask_error", COMMANDS)
async def test_without_sequencers_clients_get_a_retriable_error(ask_error: Any) -> None:
    world = answering(Done())
    world.sequencer.is_down = True
    assert await ask_error(world, 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(1, 6))
async def test_any_gateway_coordinates_every_transaction(version: int) -> None:
    world = new_world()
    assert await error_of_finding(world, version) == 0


@pytest.mark.parametrize(("version", "level_min"), [(3, 1), (4, 0)])
async def test_the_newest_protocol_is_offered_when_all_sequencers_know_it(version: int, level_min: int) -> None:
    world = new_world()
    response = await ask(world, API_VERSIONS, version, ApiVersionsRequest("c", "1"))
    assert SupportedFeatureKey("transaction.version", level_min, 2) in response.supported_features
    assert FinalizedFeatureKey("transaction.version", 2, 2) in response.finalized_features
    assert response.finalized_features_epoch >= 0
    world.sequencer.seen_level = TRANSACTIONS_LEVEL - 1
    response = await ask(world, API_VERSIONS, version, ApiVersionsRequest("c", "1"))
    assert (response.finalized_features, response.finalized_features_epoch) == ([], -1)


async def test_transactions_are_described_with_several_queries() -> None:
    world = new_world()
    views = {
        "a": TransactionView("a", "Ongoing", 7, 3, 1_000, 42, [TransactionTopic("t", [0, 1])]),
        "b": TransactionView("b", "Dead"),
        "c": TransactionView("c", "Empty", 8, 0, 2_000),
    }
    world.sequencer.views["describe_transactions"] = lambda query: DescribeTransactionsView(
        1, [views[each] for each in query.transactional_ids[:2]]
    )
    response = await ask(world, DESCRIBE, 0, DescribeTransactionsRequest(["a", "b", "c"]))
    a, b, c = response.transaction_states
    assert (a.error_code, a.transaction_state, a.producer_id, a.producer_epoch) == (0, "Ongoing", 7, 3)
    assert (a.transaction_timeout_ms, a.transaction_start_time_ms, a.topics) == (1_000, 42, [TopicData("t", [0, 1])])
    assert (b.error_code, b.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "b")
    assert (c.transaction_state, c.transaction_start_time_ms, c.topics) == ("Empty", -1, [])


async def test_transactions_are_listed_page_by_page() -> None:
    world = new_world()
    every = [TransactionSummary(name, 7, "Empty") for name in "abcde"]

    def page(query: Any) -> TransactionsView:
        left = [each for each in every if each.transactional_id > query.after]
        return TransactionsView(1, left[:2], is_more=len(left) > 2)

    world.sequencer.views["transactions"] = page
    response = await ask(world, LIST, 1, ListTransactionsRequest(["Empty", "Odd"], [7], 500))
    assert response.transaction_states == [TransactionState(name, 7, "Empty") for name in "abcde"]
    assert response.unknown_state_filters == ["Odd"]
    asked = [query for name, query in world.sequencer.queries if name == "transactions"]
    assert [(each.states, each.producer_ids, each.duration_ms, each.after) for each in asked] == [
        (["Empty", "Odd"], [7], 500, after) for after in ("", "b", "d")
    ]


@pytest.mark.parametrize(("version", "asked"), [(1, ""), (2, "a-.*")])
async def test_transactions_are_listed_by_a_pattern_from_version_2_on(version: int, asked: str) -> None:
    world = new_world()
    world.sequencer.views["transactions"] = lambda query: TransactionsView(1, [])
    request = ListTransactionsRequest(transactional_id_pattern="a-.*")
    assert (await ask(world, LIST, version, request)).error_code == 0
    assert [query.pattern for name, query in world.sequencer.queries if name == "transactions"] == [asked]


async def test_a_page_without_a_match_is_not_the_last_one() -> None:
    world = new_world()
    pages = {
        "": TransactionsView(1, [], is_more=True, after="m"),
        "m": TransactionsView(1, [TransactionSummary("x", 7, "Empty")], after="z"),
    }
    world.sequencer.views["transactions"] = lambda query: pages[query.after]
    response = await ask(world, LIST, 2, ListTransactionsRequest(transactional_id_pattern="x"))
    assert response.transaction_states == [TransactionState("x", 7, "Empty")]


async def test_an_invalid_pattern_has_its_error() -> None:
    world = new_world()
    world.sequencer.views["transactions"] = lambda query: TransactionsView(1, [], rejection=Rejection.INVALID_PATTERN)
    response = await ask(world, LIST, 2, ListTransactionsRequest(transactional_id_pattern="("))
    assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


async def test_producers_are_described_with_several_queries() -> None:
    world = new_world()
    topic = world.sequencer.add_topic("t", 3)
    view = PartitionProducers(Rejection.NONE, [ProducerView(7, 3, 41, 1_000, 0, 12)])
    world.sequencer.views["producers"] = lambda query: ProducersView(1, [view])
    topics = [TopicRequest("none", [0]), TopicRequest("t", [0, 9, 2])]
    response = await ask(world, DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics))
    (absent,), found = (each.partitions for each in response.topics)
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    states = [ProducerState(7, 3, 41, 1_000, 0, 12)]
    assert [(each.error_code, each.active_producers) for each in found] == [(0, states), (3, []), (0, states)]
    asked = [query.partitions for name, query in world.sequencer.queries if name == "producers"]
    assert asked == [[(topic.topic_id, 0), (topic.topic_id, 2)], [(topic.topic_id, 2)]]


async def test_a_transaction_or_a_partition_that_is_named_often_is_described_once() -> None:
    world = new_world()
    world.sequencer.add_topic("t", 3)
    producers = PartitionProducers(Rejection.NONE, [ProducerView(7, 3, 41, 1_000, 0, 12)])
    world.sequencer.views["producers"] = lambda query: ProducersView(1, [producers] * len(query.partitions))
    topics = [TopicRequest("t", [0, 0, 1]), TopicRequest("t", [0, 2])]
    response = await ask(world, DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics))
    found = [[(each.error_code, len(each.active_producers)) for each in topic.partitions] for topic in response.topics]
    repeated = (ErrorCode.INVALID_REQUEST, 0)
    assert found == [[(0, 1), repeated, (0, 1)], [repeated, (0, 1)]]
    world.sequencer.views["describe_transactions"] = lambda query: DescribeTransactionsView(
        1, [TransactionView(each, "Empty") for each in query.transactional_ids]
    )
    response = await ask(world, DESCRIBE, 0, DescribeTransactionsRequest(["a", "b", "a"]))
    assert [each.transactional_id for each in response.transaction_states] == ["a", "b"]


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("require_stable", [True, False])
async def test_with_require_stable_an_offset_that_a_transaction_may_replace_is_not_in_the_answer(
    version: int, require_stable: bool
) -> None:
    world = new_world()
    offsets = [CommittedOffset("t", 0, 5, 1, "m"), CommittedOffset("t", 1, 6, 1, "n", pending=True)]
    world.sequencer.views["group_offsets"] = lambda query: GroupOffsetsView(1, offsets)
    groups = [OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0, 1])])]
    topics = [OffsetFetchRequestTopic("t", [0, 1])]
    response = await ask(world, OFFSET_FETCH, version, OffsetFetchRequest("g", topics, groups, require_stable))
    found = (response.groups[0] if version >= 8 else response).topics[0].partitions
    unstable = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT) if require_stable else (6, 1, "n", 0)
    assert [(each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code) for each in found] == [
        (5, 1, "m", 0),
        unstable,
    ]


@pytest.fixture
async def produce_world() -> AsyncIterator[World]:
    world = new_world()
    world.sequencer.add_topic("t", 2)
    async with with_flushes(world):
        yield world


def producing(records: bytes, transactional_id: str | None = "tx") -> ProduceRequest:
    data = [TopicProduceData("t", b"t".ljust(16, b"\1"), [PartitionProduceData(0, records)])]
    return ProduceRequest(transactional_id, -1, 30_000, data)


def transactional(**options: Any) -> bytes:
    return batch(producer_id=7, producer_epoch=3, base_sequence=0, **{"transactional": True, **options})


async def error_of_producing(world: World, request: ProduceRequest, version: int) -> int:
    response = await ask(world, PRODUCE, version, request)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize("version", range(3, 14))
async def test_partitions_join_a_transaction_with_their_first_batch_from_version_12_on(
    produce_world: World, version: int
) -> None:
    flusher = await produce_world.add_flusher("f1")
    assert await error_of_producing(produce_world, producing(transactional()), version) == 0
    assert await error_of_producing(produce_world, producing(batch()), version) == 0
    added = [each.meta.adds_partition for produce in flusher.produces for each in produce.batches]
    assert added == [version >= 12, False]


async def test_a_transactional_batch_needs_a_transactional_id(produce_world: World) -> None:
    await produce_world.add_flusher("f1")
    error = await error_of_producing(produce_world, producing(transactional(), None), 12)
    assert error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("rejection", "version", "error"),
    [
        (Rejection.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Rejection.INVALID_PRODUCER_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Rejection.INVALID_TXN_STATE, 10, ErrorCode.INVALID_TXN_STATE),
        (Rejection.INVALID_TXN_STATE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (Rejection.POLICY_VIOLATION, 12, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_rejected_batches_get_an_error_that_the_version_knows(
    produce_world: World, rejection: Rejection, version: int, error: ErrorCode
) -> None:
    flusher = await produce_world.add_flusher("f1")
    flusher.rejection = rejection
    assert await error_of_producing(produce_world, producing(transactional()), version) == error


async def test_a_plain_batch_of_a_transactional_producer_is_no_reason_to_abort(produce_world: World) -> None:
    flusher = await produce_world.add_flusher("f1")
    flusher.rejection = Rejection.INVALID_TXN_STATE
    plain = transactional(transactional=False)
    assert await error_of_producing(produce_world, producing(plain), 12) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("level", "error"),
    [
        (None, ErrorCode.NOT_ENOUGH_REPLICAS),
        (TRANSACTIONS_LEVEL - 1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_no_transactional_batch_is_flushed_while_some_sequencer_may_not_know_transactions(
    produce_world: World, level: int | None, error: ErrorCode
) -> None:
    """Otherwise it would be stored as a batch without a transaction."""
    flusher = await produce_world.add_flusher("f1")
    produce_world.sequencer.seen_level = level
    assert await error_of_producing(produce_world, producing(transactional()), 9) == error
    assert not flusher.produces


async def test_with_acks_0_a_rejected_transactional_batch_closes_the_connection(
    produce_world: World,
) -> None:
    produce_world.sequencer.seen_level = TRANSACTIONS_LEVEL - 1
    request = msgspec.structs.replace(producing(transactional()), acks=0)
    with pytest.raises(CloseConnection, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await ask(produce_world, PRODUCE, 9, request)
