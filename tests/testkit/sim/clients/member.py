"""Members of a classic consumer group: they join, assign, heartbeat, read, commit, leave and return."""

import asyncio
from collections import defaultdict
from typing import Any

import msgspec

from penstock.contracts.levels import LATE_JOINS_LEVEL
from penstock.kafkawire.api.heartbeat import HeartbeatRequest
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.kafkawire.api.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.kafkawire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.kafkawire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.kafkawire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.coordination.heartbeat_leases import HeartbeatLeaseLimits
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import Reading
from tests.testkit.sim.clients.kafka import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)
from tests.testkit.sim.clients.settings import ClientSettings

REBALANCE_WAIT_S = 20.0  # the answer to a join waits for the slowest member
READ_WAIT_MS = 300
STATIC_RETURN_SHARE = 0.8
STATIC_SHARE = 0.3  # of members with an instance id (KIP-345), which usually return without a leave.
LEAVE_SHARE = 0.01  # Of rounds after which a member leaves, and joins again as a new member.
RETRIABLE = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
)
LOST = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))


class Rejoin(Exception):
    """The member must join again."""


class GroupLedger:
    """The committed offsets of a group in the answers to its members: an acknowledged offset may never be lost."""

    def __init__(self, group_id: str, oracle: Oracle) -> None:
        self.group_id = group_id
        self.committed: dict[int, int] = defaultdict(int)
        self.done: dict[int, int] = defaultdict(int)  # the offset up to which members have read without a gap
        self._oracle = oracle

    def acknowledge(self, partition: int, offset: int) -> None:
        """Take an acknowledged commit."""
        self.committed[partition] = max(self.committed[partition], offset)

    def check_start(self, who: str, partition: int, offset: int, floor: int) -> None:
        """Check a fetched offset; `floor` was acknowledged before the request."""
        if max(offset, 0) < floor and self._oracle.was_lowered(self.group_id, partition):
            self._oracle.observed(who, f"a late commit replaced {self.group_id}-{partition} {floor}, at level 0")
            self.committed[partition] = max(offset, 0)
        elif max(offset, 0) < floor:
            what = f"the offset of {self.group_id}-{partition}"
            self._oracle.rejected(who, what, f"it went back to {offset} after {floor} was acknowledged")
        # A fetched offset was committed, also if no member got the answer to the commit.
        self.committed[partition] = max(self.committed[partition], offset)

    def read(self, partition: int, start: int, end: int) -> None:
        """Take the range of offsets that a member has read."""
        if start <= self.done[partition]:
            self.done[partition] = max(self.done[partition], end)


class Member:
    """One member, with all its joins."""

    requires_stable = False  # whether it fetches only offsets that no open transaction may change (KIP-447)
    retriable = RETRIABLE
    commit_version = 8

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        ledger: GroupLedger,
        topic: str,
        partitions: int,
        settings: ClientSettings,
    ) -> None:
        self.name = client.name
        self.assigned: list[int] | None = None
        self.generation = -1
        self.may_leave = True
        self._member_id = ""
        self._former_id = ""  # of the static member before, which this one replaces
        self._client = client
        self._stream = client.stream
        self._instance_id = client.name if self._stream.random() < STATIC_SHARE else None
        self._oracle = oracle
        self._ledger = ledger
        self._topic = topic
        self._partitions = partitions
        self._settings = settings
        self._join_version = self._stream.choice((3, 5, 9) if self._instance_id is None else (5, 9))
        self._committed: dict[int, int] = {}
        self._reading: Reading | None = None  # for one assignment

    async def run(self) -> None:
        """Take part in the group until cancelled."""
        while True:
            connection = await self._client.connect()
            try:
                while True:
                    await self._take_part(connection)
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()

    async def _take_part(self, connection: Connection) -> None:
        """Take part in one generation of the group."""
        try:
            if self.assigned is None:
                await self._join(connection)
            if self._reading is None:
                reading = Reading(self._client, self._oracle, self._topic)
                reading.positions = await self.start_offsets(connection, self.assigned or [])
                self._reading = reading
            await self._work(connection, self._reading)
        except Rejoin:
            self.assigned = self._reading = None

    async def _join(self, connection: Connection) -> None:
        version = self._join_version
        request = JoinGroupRequest(
            group_id=self._ledger.group_id,
            session_timeout_ms=self._settings.member.session_timeout_ms,
            rebalance_timeout_ms=self._settings.member.rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        answer: JoinGroupResponse = await connection.ask(JOIN_GROUP, version, request, REBALANCE_WAIT_S)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            raise Rejoin
        self.check_error("a join", answer.error_code)
        self._member_id = answer.member_id
        self.generation = answer.generation_id
        shares: dict[str, list[int]] = {}
        if answer.leader == self._member_id:
            ids = [member.member_id for member in answer.members]
            shares = {each: list(range(place, self._partitions, len(ids))) for place, each in enumerate(ids)}
        await self._sync(connection, shares)
        if self._former_id:
            await self._check_former_member(connection)

    async def _check_former_member(self, connection: Connection) -> None:
        """The former member with the same instance id must be fenced, while this one stays in the group.

        A gateway that reaches no sequencer may confirm it, but for no longer than its lease.
        """
        request = HeartbeatRequest(self._ledger.group_id, self.generation, self._former_id, self._instance_id)
        own = HeartbeatRequest(self._ledger.group_id, self.generation, self._member_id, self._instance_id)
        former_id, self._former_id = self._former_id, ""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + HeartbeatLeaseLimits().lease_s
        while True:
            error = ErrorCode((await connection.ask(HEARTBEAT, 4, request)).error_code)
            if error in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID) or error in RETRIABLE:
                return
            if error or loop.time() >= end_s:
                self._oracle.rejected(self.name, f"a heartbeat of the replaced {former_id}", error.name)
                return
            await asyncio.sleep(self._settings.member.heartbeat_s)
            answer = await connection.ask(HEARTBEAT, 4, own)
            self.check_error("a heartbeat", answer.error_code)

    async def _sync(self, connection: Connection, shares: dict[str, list[int]]) -> None:
        request = SyncGroupRequest(
            group_id=self._ledger.group_id,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id, msgspec.msgpack.encode(share))
                for member_id, share in shares.items()
            ],
        )
        answer = await connection.ask(SYNC_GROUP, 5, request, REBALANCE_WAIT_S)
        self.check_error("a sync", answer.error_code)
        self._oracle.observed(self.name, f"generation {self.generation} {self._member_id[-4:]}")
        self.assigned = msgspec.msgpack.decode(bytes(answer.assignment), type=list[int]) if answer.assignment else []

    async def start_offsets(self, connection: Connection, partitions: list[int]) -> dict[int, int]:
        floors = dict(self._ledger.committed)
        answer = await self._ask_offsets(connection, partitions)
        self.check_error("an offset fetch", answer.error_code)
        self._oracle.observed(self.name, f"offsets {[e.committed_offset for t in answer.topics for e in t.partitions]}")
        offsets: dict[int, int] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                self.check_error("an offset fetch", each.error_code)
                offset = each.committed_offset
                self._ledger.check_start(self.name, each.partition_index, offset, floors.get(each.partition_index, 0))
                offsets[each.partition_index] = max(offset, 0)
        if set(offsets) != set(partitions):
            self._oracle.rejected(self.name, "an offset fetch", f"{sorted(offsets)} came instead of {partitions}")
        self._committed = dict(offsets)
        return offsets

    async def _ask_offsets(self, connection: Connection, partitions: list[int]) -> Any:
        topics = [OffsetFetchRequestTopic(self._topic, partitions)]
        request = OffsetFetchRequest(self._ledger.group_id, topics, require_stable=self.requires_stable)
        return await connection.ask(OFFSET_FETCH, 7, request)

    async def _work(self, connection: Connection, reading: Reading) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._settings.member.heartbeat_s
        heartbeat_due_s = loop.time() + interval_s
        while True:
            await self._read(connection, reading, READ_WAIT_MS)
            if self._stream.random() < 0.7:
                await self._commit(connection, reading)
            if loop.time() >= heartbeat_due_s:
                heartbeat_due_s = loop.time() + interval_s
                await self._heartbeat(connection, reading)
            if self.may_leave and self._stream.random() < LEAVE_SHARE:
                await self._leave(connection)

    async def _read(self, connection: Connection, reading: Reading, wait_ms: int) -> None:
        """Fetch once from all partitions, and record the range in the ledger."""
        if not reading.positions:
            await asyncio.sleep(wait_ms / 1000)
            return
        before = dict(reading.positions)
        await reading.fetch(connection, wait_ms)
        for partition, offset in reading.positions.items():
            self._ledger.read(partition, before[partition], offset)

    async def _heartbeat(self, connection: Connection, reading: Reading) -> None:
        request = HeartbeatRequest(self._ledger.group_id, self.generation, self._member_id, self._instance_id)
        answer = await connection.ask(HEARTBEAT, 4, request)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._commit(connection, reading)
        self.check_error("a heartbeat", answer.error_code)

    async def _commit(self, connection: Connection, reading: Reading) -> None:
        due = {each: offset for each, offset in reading.positions.items() if offset > self._committed.get(each, 0)}
        if not due:
            return
        partitions = [OffsetCommitRequestPartition(each, offset) for each, offset in due.items()]
        request = OffsetCommitRequest(
            group_id=self._ledger.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=[OffsetCommitRequestTopic(self._topic, partitions=partitions)],
        )
        answer = await connection.ask(OFFSET_COMMIT, self.commit_version, request)
        self._oracle.observed(
            self.name, f"commit of {due} {[e.error_code for t in answer.topics for e in t.partitions]}"
        )
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    self._committed[each.partition_index] = due[each.partition_index]
                    self._ledger.acknowledge(each.partition_index, due[each.partition_index])
        for topic in answer.topics:
            for each in topic.partitions:
                self.check_error("a commit", each.error_code)

    async def _leave(self, connection: Connection) -> None:
        identity = MemberIdentity(self._member_id, self._instance_id)
        request = LeaveGroupRequest(group_id=self._ledger.group_id, members=[identity])
        member_id, self._member_id, self.assigned, self._reading = self._member_id, "", None, None
        if self._instance_id is not None and self._stream.random() < STATIC_RETURN_SHARE:
            self._former_id = member_id
            raise Rejoin
        answer: Any = await connection.ask(LEAVE_GROUP, 5, request)
        if answer.error_code and answer.error_code not in RETRIABLE:
            self._oracle.rejected(self.name, f"the leave of {member_id}", ErrorCode(answer.error_code).name)
        raise Rejoin

    def check_error(self, what: str, code: int) -> None:
        """Raise the exception for a client's reaction to an error."""
        error = ErrorCode(code)
        if not error:
            return
        if error in LOST:
            self._member_id = "" if error == ErrorCode.UNKNOWN_MEMBER_ID else self._member_id
            raise Rejoin
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            raise Rejoin
        if error == ErrorCode.FENCED_INSTANCE_ID and self._oracle.state.level < LATE_JOINS_LEVEL:
            self._oracle.observed(self.name, "a late join of this client took its place, below the level")
            self._member_id = ""
            raise Rejoin
        if error in self.retriable:
            raise Disconnected(f"retry: {error.name}")
        self._oracle.rejected(self.name, what, error.name)
        raise Disconnected(error.name)
