"""The checks of the APIs of producers and transactions."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.kafkawire.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.enforcement.groups import on_group
from penstock_gateway.enforcement.guard import (
    ERRORS,
    Call,
    Check,
    Checks,
    Message,
    Proceed,
    on_items,
    on_request,
    on_results,
    on_topics,
    split,
)
from penstock_gateway.enforcement.records import topic_named

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, CLUSTER, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
FIRST_VERSION_COMMIT_IDS = 6  # of topics
FIRST_VERSION_BATCHED_ADDS = 4  # only brokers use it (KIP-890)


def on_transaction(refused: Callable[[int, Any, ErrorCode], Message]) -> Check:
    """A check that the client may use the transactional id of the request."""
    return on_request(WRITE, TRANSACTIONAL_ID, lambda request: request.transactional_id, refused)


async def check_producer(call: Call, request: init_producer_id.InitProducerIdRequest, proceed: Proceed) -> Message:
    """Check the transactional id; a client without one needs WRITE on some topic, or IDEMPOTENT_WRITE."""
    access = call.access
    if request.transactional_id is not None:
        is_allowed, error = access.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id), ERRORS[TRANSACTIONAL_ID]
    else:
        is_allowed = access.grants(AclOperation.IDEMPOTENT_WRITE, CLUSTER) or access.allows_any(WRITE, TOPIC)
        error = ERRORS[CLUSTER]
    if is_allowed:
        return await proceed(request)
    return init_producer_id.InitProducerIdResponse(error_code=error, producer_epoch=-1)


async def check_added_partitions(
    call: Call, request: add_partitions_to_txn.AddPartitionsToTxnRequest, proceed: Proceed
) -> Message:
    """Check the transactional id and each topic. One refused topic prevents all of them, as in Kafka."""
    if call.version >= FIRST_VERSION_BATCHED_ADDS:
        if call.access.allows(AclOperation.CLUSTER_ACTION, CLUSTER):
            return await proceed(request)
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=ERRORS[CLUSTER])
    topics = request.v3_and_below_topics
    if not call.access.allows(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return _added([(topic, ERRORS[TRANSACTIONAL_ID]) for topic in topics])
    allowed, refused = await split(call, topics, topic_named(WRITE))
    if not refused:
        return await proceed(request)
    return _added([*refused, *((topic, ErrorCode.OPERATION_NOT_ATTEMPTED) for topic in allowed)])


def _added(
    topics: list[tuple[add_partitions_to_txn.AddPartitionsToTxnTopic, ErrorCode]],
) -> add_partitions_to_txn.AddPartitionsToTxnResponse:
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                topic.name,
                [add_partitions_to_txn.AddPartitionsToTxnPartitionResult(number, error) for number in topic.partitions],
            )
            for topic, error in topics
        ]
    )


async def check_markers(call: Call, request: write_txn_markers.WriteTxnMarkersRequest, proceed: Proceed) -> Message:
    """Check that the client is an administrator or a broker."""
    access = call.access
    if access.grants(AclOperation.ALTER, CLUSTER) or access.allows(AclOperation.CLUSTER_ACTION, CLUSTER):
        return await proceed(request)
    return write_txn_markers.WriteTxnMarkersResponse([_refused_marker(marker) for marker in request.markers])


def _refused_marker(marker: write_txn_markers.WritableTxnMarker) -> write_txn_markers.WritableTxnMarkerResult:
    topics = [
        write_txn_markers.WritableTxnMarkerTopicResult(
            topic.name,
            [
                write_txn_markers.WritableTxnMarkerPartitionResult(number, ERRORS[CLUSTER])
                for number in topic.partition_indexes
            ],
        )
        for topic in marker.topics
    ]
    return write_txn_markers.WritableTxnMarkerResult(marker.producer_id, topics)


async def hide_topics_of_transactions(call: Call, request: Message, proceed: Proceed) -> Message:
    """Leave out the topics that the client may not see."""
    response = await proceed(request)
    states = [
        msgspec.structs.replace(
            state, topics=[each for each in state.topics if call.access.allows(DESCRIBE, TOPIC, each.topic)]
        )
        for state in response.transaction_states
    ]
    return msgspec.structs.replace(response, transaction_states=states)


def _refused_commits(topic: txn_offset_commit.TxnOffsetCommitRequestTopic, error: ErrorCode) -> Message:
    partitions = [
        txn_offset_commit.TxnOffsetCommitResponsePartition(each.partition_index, error) for each in topic.partitions
    ]
    return txn_offset_commit.TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)


def _refused_commit(version: int, request: txn_offset_commit.TxnOffsetCommitRequest, error: ErrorCode) -> Message:
    topics = [_refused_commits(topic, error) for topic in request.topics]
    return txn_offset_commit.TxnOffsetCommitResponse(topics=topics)


def _refused_end(version: int, request: end_txn.EndTxnRequest, error: ErrorCode) -> Message:
    return end_txn.EndTxnResponse(error_code=error)


def _refused_offsets(version: int, request: add_offsets_to_txn.AddOffsetsToTxnRequest, error: ErrorCode) -> Message:
    return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=error)


CHECKS: Checks = {
    init_producer_id.API.key: (check_producer,),
    add_partitions_to_txn.API.key: (check_added_partitions,),
    add_offsets_to_txn.API.key: (on_transaction(_refused_offsets), on_group(READ, _refused_offsets)),
    end_txn.API.key: (on_transaction(_refused_end),),
    txn_offset_commit.API.key: (
        on_transaction(_refused_commit),
        on_group(READ, _refused_commit),
        on_topics(READ, FIRST_VERSION_COMMIT_IDS, _refused_commits),
    ),
    write_txn_markers.API.key: (check_markers,),
    describe_transactions.API.key: (
        on_items(
            "transactional_ids",
            lambda name: (DESCRIBE, TRANSACTIONAL_ID, name),
            "transaction_states",
            lambda name, error: describe_transactions.TransactionState(error, name),
        ),
        hide_topics_of_transactions,
    ),
    list_transactions.API.key: (on_results("transaction_states", DESCRIBE, TRANSACTIONAL_ID, "transactional_id"),),
}
