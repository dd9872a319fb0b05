"""A stalled gateway handles nothing that waited in it, and late commits of a connection change nothing."""

import asyncio
from typing import Any

import msgspec
import pytest

from penstock.contracts import commands
from penstock.contracts.commands import Command, CommitOffsets, OffsetToCommit, Outcome
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.kafkawire.api import decode_response, encode_request
from penstock.kafkawire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.kafkawire.api.end_txn import EndTxnRequest
from penstock.kafkawire.api.init_producer_id import InitProducerIdRequest
from penstock.kafkawire.api.metadata import MetadataRequest
from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.server.limits import ConnectionLimits
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import new_state
from tests.testkit.cancelling import turns
from tests.testkit.waiting import until
from tests.unit.gateway.server.test_gateway_listener import Kafka, RawClient

METADATA, COMMIT, VERSIONS, INIT, ADD_OFFSETS, END, TXN_COMMIT = 3, 8, 18, 22, 25, 26, 28
LIMITS = ConnectionLimits()
STALL_S = LIMITS.stall_s + 0.1
CLOSED = "penstock_gateway_connections_closed_total"


class Cluster(Kafka):
    """A gateway's listener; its sequencer is the state machine itself."""

    def __init__(self) -> None:
        super().__init__(limits=LIMITS)
        self.state = new_state()
        self.world.sequencer.on_command = self.do
        self.do(commands.RaiseLevel(0, NEWEST_LEVEL))
        self.do(commands.CreateTopic(0, "t", b"t" * 16, 1, {}))

    def do(self, command: Command) -> Outcome:
        """Apply a command; the gateway learns of the entry at once."""
        command = msgspec.structs.replace(command, now_ms=self.state.clock_ms + 1)
        ((outcome,),) = apply_entry(self.state, self.state.sequence + 1, [[command]])[0]
        self.world.sequencer.record_sequence(self.state.sequence)
        return outcome

    def commit_elsewhere(self, offset: int) -> None:
        """Commit an offset through another gateway, which knows the newest entry."""
        item = OffsetToCommit("t", 0, offset, -1, "")
        self.do(CommitOffsets(0, "g", -1, "", None, [item], self.state.sequence))

    @property
    def offset(self) -> int:
        return self.state.groups["g"].offsets["t"][0].offset

    @property
    def seen(self) -> list[int]:
        """The sequences in the commits that came through the gateway."""
        return [each.seen_sequence for (each,) in self.world.sequencer.commands if isinstance(each, CommitOffsets)]


def commit(client: RawClient, offset: int) -> None:
    topics = [
        OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset, committed_metadata="")])
    ]
    request = OffsetCommitRequest("g", -1, "", None, topics=topics)
    client.send(COMMIT, 7, encode_request(COMMIT, 7, request), offset)


async def result(client: RawClient) -> int:
    """The error code of the next answer, which is one to a commit."""
    answer = decode_response(COMMIT, 7, await client.next_body())
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def ask(client: RawClient, key: int, version: int, *requests: msgspec.Struct) -> list[Any]:
    """Send all requests, then read all answers."""
    for number, request in enumerate(requests):
        client.send(key, version, encode_request(key, version, request), number)
    return [decode_response(key, version, await client.next_body()) for _ in requests]


async def test_a_stalled_gateway_closes_its_connections_before_it_handles_bytes_that_waited() -> None:
    async with Cluster() as kafka:
        clients = [await kafka.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            client.ask_versions(number)
            assert await client.next_correlation_id() == number
        for client in clients:
            commit(client, 100)
        kafka.world.clock.now_s += STALL_S
        for client in clients:
            assert await client.until_closed() == b""
        await until(lambda: not kafka.connections.open_connections)
        assert kafka.world.metric(CLOSED, cause="stalled") == 3
        assert not kafka.world.sequencer.commands


async def test_a_stall_cancels_a_request_once_so_that_its_cleanup_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have to release records, or to wait for a thread."""
    steps: list[str] = []

    async def query(*arguments: Any, **options: Any) -> None:
        steps.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await turns(10)
            steps.append("cleaned up")

    async with Cluster() as kafka:
        client = await kafka.connect()
        monkeypatch.setattr(kafka.world.sequencer, "query", query)
        client.send(METADATA, 8, encode_request(METADATA, 8, MetadataRequest(topics=None)), 1)
        await until(lambda: steps == ["begun"])
        kafka.world.clock.now_s += STALL_S
        assert await client.until_closed() == b""
        await until(lambda: not kafka.connections.open_connections)
        await turns(20)
        assert steps == ["begun", "cleaned up"]


async def test_after_a_stall_requests_that_wait_for_earlier_ones_do_not_begin() -> None:
    async with Cluster() as kafka:
        client = await kafka.connect()
        kafka.world.sequencer.hold = asyncio.Event()
        commit(client, 99)
        commit(client, 100)
        await until(lambda: len(kafka.seen) == 1)
        kafka.world.clock.now_s += STALL_S
        kafka.world.sequencer.hold.set()  # the first answer waited, too, and may still be sent
        await client.until_closed()
        assert len(kafka.seen) == 1


async def test_connections_that_waited_to_be_accepted_during_a_stall_are_closed_and_later_ones_are_served() -> None:
    async with Cluster() as kafka:
        before = await kafka.connect()
        before.ask_versions(1)
        assert await before.next_correlation_id() == 1
        kafka.world.clock.now_s += STALL_S
        early = await kafka.connect()
        commit(early, 100)
        assert await early.until_closed() == b""
        assert not kafka.world.sequencer.commands
        kafka.world.clock.now_s += LIMITS.settle_s
        later = await kafka.connect()
        commit(later, 200)
        assert await result(later) == ErrorCode.NONE


async def test_a_gateway_that_is_merely_slow_loses_no_clients() -> None:
    """As with a third of a core, when each step takes seconds."""
    async with Cluster() as kafka:
        client = await kafka.connect()
        for number in range(10):
            client.ask_versions(number)
            kafka.world.clock.now_s += LIMITS.stall_s
            assert await client.next_correlation_id() == number
            assert not kafka.connections.wake()


async def test_a_commit_that_waited_in_the_gateway_does_not_undo_a_newer_one() -> None:
    async with Cluster() as kafka:
        kafka.commit_elsewhere(10)
        arrived = kafka.state.sequence
        client = await kafka.connect()
        kafka.world.sequencer.hold = asyncio.Event()
        commit(client, 99)
        commit(client, 100)
        await until(lambda: len(kafka.seen) == 1)
        kafka.commit_elsewhere(200)
        kafka.world.sequencer.hold.set()
        assert [await result(client) for _ in range(2)] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
        assert kafka.seen == [arrived, arrived]
        assert kafka.offset == 200
        commit(client, 100)  # the client still waits: it has got the errors
        assert await result(client) == ErrorCode.NONE
        assert kafka.offset == 100


async def test_pipelined_commits_of_one_connection_all_succeed() -> None:
    async with Cluster() as kafka:
        client = await kafka.connect()
        for offset in range(100, 105):
            commit(client, offset)
        assert [await result(client) for _ in range(5)] == [ErrorCode.NONE] * 5
        assert kafka.offset == 104


async def test_the_pipelined_requests_of_a_transaction_all_succeed() -> None:
    async with Cluster() as kafka:
        client = await kafka.connect()
        (producer,) = await ask(client, INIT, 1, InitProducerIdRequest("x", 60_000))
        identity = (producer.producer_id, producer.producer_epoch)
        offset = TxnOffsetCommitRequestPartition(0, 7, committed_metadata="")
        requests: list[tuple[int, msgspec.Struct]] = [
            (ADD_OFFSETS, AddOffsetsToTxnRequest("x", *identity, "g")),
            (
                TXN_COMMIT,
                TxnOffsetCommitRequest(
                    "x", "g", *identity, topics=[TxnOffsetCommitRequestTopic("t", partitions=[offset])]
                ),
            ),
            (END, EndTxnRequest("x", *identity, committed=True)),
        ]
        for _ in range(2):
            for key, request in requests:
                client.send(key, 2, encode_request(key, 2, request), key)
            answers = [decode_response(key, 2, await client.next_body()) for key, _ in requests]
            assert answers[0].error_code == answers[2].error_code == ErrorCode.NONE
            assert answers[1].topics[0].partitions[0].error_code == ErrorCode.NONE
        assert kafka.offset == 7
