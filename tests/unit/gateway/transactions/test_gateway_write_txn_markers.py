"""WriteTxnMarkers: an administrator aborts a transaction as a whole, and can commit none."""

from typing import Any

import pytest

from penstock.contracts.commands import EndTxn, Rejected, TransactionEnded
from penstock.contracts.queries.transactions import (
    DescribeTransactionsView,
    TransactionSummary,
    TransactionsView,
    TransactionTopic,
    TransactionView,
)
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

WRITE_MARKERS = 27
SEEN = 45
LEADER_EPOCH = 1  # of the topics that the fake sequencers know
PRODUCER, EPOCH = 7, 3
ONGOING = TransactionView("tx", "Ongoing", PRODUCER, EPOCH, 1_000, 42, [TransactionTopic("t", [0, 1])])


def knowing(*views: TransactionView) -> World:
    """Sequencers that have these transactions, and accept their ends."""
    world = new_world()
    world.sequencer.add_topic("t", 3)
    world.sequencer.views["transactions"] = lambda query: TransactionsView(
        SEEN,
        [
            TransactionSummary(each.transactional_id, each.producer_id, each.state)
            for each in views
            if each.producer_id in query.producer_ids
        ],
    )
    named = {each.transactional_id: each for each in views}
    world.sequencer.views["describe_transactions"] = lambda query: DescribeTransactionsView(
        SEEN, [named[each] for each in query.transactional_ids]
    )
    world.sequencer.on_command = lambda command: TransactionEnded(PRODUCER, EPOCH + 1)
    return world


def marker(*partitions: int, topic: str = "t", **changes: Any) -> WritableTxnMarker:
    said = {"producer_epoch": EPOCH, "coordinator_epoch": LEADER_EPOCH, **changes}
    return WritableTxnMarker(PRODUCER, topics=[WritableTxnMarkerTopic(topic, list(partitions))], **said)


async def errors(world: World, *markers: WritableTxnMarker, version: int = 2) -> list[list[int]]:
    """Send the markers; return the error codes of each marker's partitions."""
    response = await ask(world, WRITE_MARKERS, version, WriteTxnMarkersRequest(list(markers)))
    assert [each.producer_id for each in response.markers] == [each.producer_id for each in markers]
    return [[place.error_code for topic in each.topics for place in topic.partitions] for each in response.markers]


@pytest.mark.parametrize("version", [1, 2])
async def test_the_open_transaction_of_the_partition_is_aborted_as_a_whole(version: int) -> None:
    world = knowing(ONGOING)
    assert await errors(world, marker(1), version=version) == [[0]]
    end = EndTxn(world.clock.now_ms(), "tx", PRODUCER, EPOCH, committed=False, bumps=True, seen_sequence=SEEN)
    assert world.sequencer.commands == [[end]]


@pytest.mark.parametrize(
    "view",
    [
        TransactionView("tx", "Empty", PRODUCER, EPOCH),
        TransactionView("tx", "CompleteCommit", PRODUCER, EPOCH),
        TransactionView("tx", "Ongoing", PRODUCER, EPOCH, 1_000, 42, [TransactionTopic("t", [0])]),
        TransactionView("tx", "Ongoing", 8, EPOCH, 1_000, 42, [TransactionTopic("t", [1])]),
    ],
    ids=lambda view: f"{view.state} {view.producer_id}",
)
async def test_without_an_open_transaction_of_the_producer_nothing_changes(view: TransactionView) -> None:
    world = knowing(view)
    assert await errors(world, marker(1)) == [[0]]
    assert not world.sequencer.commands


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"producer_epoch": EPOCH - 1}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"coordinator_epoch": LEADER_EPOCH - 1}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ({"transaction_result": True}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ({"topic": "none"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        # From this version on, a marker has a later epoch than its records (KIP-1228).
        ({"transaction_version": 2}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"transaction_version": 2, "producer_epoch": EPOCH + 1}, ErrorCode.NONE),
    ],
)
async def test_an_invalid_marker_ends_nothing(changes: dict[str, Any], error: ErrorCode) -> None:
    world = knowing(ONGOING)
    assert await errors(world, marker(1, **changes)) == [[error]]
    assert len(world.sequencer.commands) == (error is ErrorCode.NONE)


async def test_a_repeated_abort_succeeds() -> None:
    world = knowing(TransactionView("tx", "CompleteAbort", PRODUCER, EPOCH + 1))
    assert await errors(world, marker(1)) == [[0]]
    assert await errors(world, marker(1, producer_epoch=EPOCH - 1)) == [[ErrorCode.INVALID_PRODUCER_EPOCH]]


async def test_each_partition_has_its_own_result_and_the_transaction_ends_once() -> None:
    world = knowing(ONGOING)
    assert await errors(world, marker(0, 9, 1, 2)) == [[0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]]
    assert len(world.sequencer.commands) == 1


@pytest.mark.parametrize(
    ("rejection", "error"),
    [
        (Rejection.STALE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (Rejection.OVERLOADED, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (Rejection.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_changes_meanwhile_have_errors_that_administration_clients_know(
    rejection: Rejection, error: ErrorCode
) -> None:
    world = knowing(ONGOING)
    world.sequencer.on_command = lambda command: Rejected(rejection)
    assert await errors(world, marker(1)) == [[error]]


async def test_without_sequencers_administration_clients_look_for_another_leader() -> None:
    world = knowing(ONGOING)
    await errors(world, marker(2))  # after this the topic is cached
    world.sequencer.is_down = True
    assert await errors(world, marker(1)) == [[ErrorCode.NOT_LEADER_OR_FOLLOWER]]
