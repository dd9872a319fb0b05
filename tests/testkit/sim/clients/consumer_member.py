"""Members of a consumer group of KIP-848: the sequencers assign partitions, members heartbeat and release them.

These members read and commit as members of the classic protocol do, with the same ledger. The journal shows which
partitions the group assigned to a member. A member may have no others, so no two members have the same partition.
"""

import asyncio
import base64
from typing import Any

from penstock.contracts.commands import AlterConfigs, Command, ConfigChange, ConfigOperation
from penstock.contracts.configs.members import CONSUMER_HEARTBEAT_INTERVAL, CONSUMER_SESSION_TIMEOUT
from penstock.kafkawire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.kafkawire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import Reading
from tests.testkit.sim.clients.kafka import (
    CONSUMER_GROUP_HEARTBEAT,
    OFFSET_FETCH,
    KafkaClient,
    KafkaConnection as Connection,
)
from tests.testkit.sim.clients.member import LEAVE_SHARE, READ_WAIT_MS, GroupLedger, Member, Rejoin
from tests.testkit.sim.clients.settings import ClientSettings

HEARTBEAT_MS = 1_000  # instead of Kafka's five seconds
REBALANCE_TIMEOUT_MS = 4_000
STALL_SHARE = 0.004  # of rounds after which a member stalls, perhaps for longer than its session
LOST = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND))
MEMBER_ID_BYTES = 16
JOINS, LEAVES = 0, -1


def group_configs(now_ms: int, session_timeout_ms: int) -> list[Command]:
    """The commands that set the timeouts of such members, before they join."""
    times = {CONSUMER_HEARTBEAT_INTERVAL: HEARTBEAT_MS, CONSUMER_SESSION_TIMEOUT: session_timeout_ms}
    changes = [ConfigChange(name, ConfigOperation.SET, str(value)) for name, value in times.items()]
    return [AlterConfigs(now_ms, "", changes)]


class StaleEpoch(Exception):
    """The member does not know its newest epoch."""


class OwnershipChecker:
    """The partitions of each member, from the answer that assigns them until the member releases or loses them."""

    def __init__(self, group_id: str, topic: str, oracle: Oracle) -> None:
        self._group_id = group_id
        self._topic = topic
        self._oracle = oracle
        self._owned: dict[str, list[int]] = {}  # member id -> partitions

    def own(self, member_id: str, partitions: list[int]) -> None:
        """Set the partitions of a member."""
        self._owned[member_id] = partitions
        self._check()

    def observe(self, sequence: int, data: bytes) -> None:
        """Check all members after an entry of the journal."""
        if self._owned:
            self._check()

    def _check(self) -> None:
        """Each member of the group has only partitions that the group has assigned to it."""
        group, topic = self._oracle.state.groups.get(self._group_id), self._oracle.state.topics.get(self._topic)
        if group is None or group.consumer is None or topic is None:
            return
        for member_id, owned in self._owned.items():
            truth = group.consumer.members.get(member_id)  # None for a removed member, which may not know it yet
            if truth is not None:
                known = {*truth.assigned.get(topic.topic_id, ()), *truth.revoking.get(topic.topic_id, ())}
                if not known.issuperset(owned):
                    self._oracle.rejected(member_id, f"it has {owned}", f"the group has assigned {sorted(known)}")

    def lose(self, member_id: str) -> None:
        """Remove the partitions of a member."""
        self._owned.pop(member_id, None)


class ConsumerMember(Member):
    """One member, with all its joins."""

    commit_version = 9  # the first with an error for a stale epoch

    def __init__(
        self,
        client: KafkaClient,
        oracle: Oracle,
        ledger: GroupLedger,
        ownership: OwnershipChecker,
        topic: str,
        partitions: int,
        settings: ClientSettings,
    ) -> None:
        super().__init__(client, oracle, ledger, topic, partitions, settings)
        self._instance_id = None
        self._member_id = base64.urlsafe_b64encode(self._stream.randbytes(MEMBER_ID_BYTES)).decode().rstrip("=")
        self._ownership = ownership
        self._heartbeat_due_s = 0.0
        self._must_send_all = True  # after a lost answer, the next heartbeat has all fields
        self._has_changes = False  # its partitions differ from those in its last heartbeat
        self.generation = JOINS

    async def _take_part(self, connection: Connection) -> None:
        """Heartbeat, and consume until the next heartbeat."""
        try:
            await self._send_heartbeats(connection)
            await self._start_new_partitions(connection)
            await self._consume(connection)
        except StaleEpoch:
            pass
        except Rejoin:
            self._reset()

    def _reset(self) -> None:
        self.generation, self.assigned, self._reading = JOINS, None, None
        self._committed = {}
        self._ownership.lose(self._member_id)

    async def _send_heartbeats(self, connection: Connection) -> None:
        """Send heartbeats until all changes are reported."""
        while True:
            answer = await self._send_heartbeat(connection)
            assigned = self._partitions_of(answer)
            before, self.generation = self.assigned or [], answer.member_epoch
            if assigned is not None and assigned != self.assigned:
                await self._revoke(connection, [each for each in before if each not in assigned])
                self.assigned, self._has_changes = assigned, True
                self._oracle.observed(self.name, f"epoch {self.generation}: {assigned}")
            self._ownership.own(self._member_id, self.assigned or [])
            if not self._has_changes:
                self._heartbeat_due_s = asyncio.get_running_loop().time() + answer.heartbeat_interval_ms / 1000
                return

    async def _send_heartbeat(self, connection: Connection) -> ConsumerGroupHeartbeatResponse:
        sends_all = self._must_send_all or self.generation == JOINS
        owned = None
        if sends_all or self._has_changes:
            owned = [TopicPartitions(self._topic_id, self.assigned)] if self.assigned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._ledger.group_id,
            member_id=self._member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if sends_all else -1,
            subscribed_topic_names=[self._topic] if sends_all else None,
            topic_partitions=owned,
        )
        self._must_send_all = True
        answer: ConsumerGroupHeartbeatResponse = await connection.ask(CONSUMER_GROUP_HEARTBEAT, 1, request)
        self.check_error("a heartbeat", answer.error_code)
        self._must_send_all, self._has_changes = False, False
        return answer

    @property
    def _topic_id(self) -> bytes:
        return self._oracle.state.topics[self._topic].topic_id

    def _partitions_of(self, answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
        """The assigned partitions in an answer; None if it has no assignment."""
        if answer.assignment is None:
            return None
        return [number for topic in answer.assignment.topic_partitions for number in topic.partitions]

    async def _revoke(self, connection: Connection, partitions: list[int]) -> None:
        """Stop reading these partitions; their offsets are usually committed before the group learns it."""
        if self._reading is None or not partitions:
            return
        if self._stream.random() < 0.7:
            await self._commit(connection, self._reading)
        for partition in partitions:
            self._reading.positions.pop(partition, None)
            self._committed.pop(partition, None)

    async def _start_new_partitions(self, connection: Connection) -> None:
        """Fetch the offsets at which to begin in new partitions."""
        reading = self._reading or Reading(self._client, self._oracle, self._topic)
        new = [each for each in self.assigned or () if each not in reading.positions]
        if new:
            before = self._committed
            reading.positions |= await self.start_offsets(connection, new)
            self._committed = before | self._committed
        self._reading = reading

    async def _ask_offsets(self, connection: Connection, partitions: list[int]) -> Any:
        topics = [OffsetFetchRequestTopics(self._topic, partition_indexes=partitions)]
        group = OffsetFetchRequestGroup(self._ledger.group_id, self._member_id, self.generation, topics)
        answer = await connection.ask(OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group]))
        return answer.groups[0]

    async def _consume(self, connection: Connection) -> None:
        loop, reading = asyncio.get_running_loop(), self._reading
        while reading is not None and loop.time() < self._heartbeat_due_s:
            await self._read(connection, reading, READ_WAIT_MS)
            if self._stream.random() < 0.7:
                await self._commit(connection, reading)
            if self.may_leave and self._stream.random() < STALL_SHARE:
                await asyncio.sleep(self._stream.uniform(*self._settings.consumer_member.stall_s))
            if self.may_leave and self._stream.random() < LEAVE_SHARE:
                await self._leave(connection)

    async def _leave(self, connection: Connection) -> None:
        request = ConsumerGroupHeartbeatRequest(self._ledger.group_id, self._member_id, LEAVES)
        self._reset()
        answer = await connection.ask(CONSUMER_GROUP_HEARTBEAT, 1, request)
        self.check_error("a leave", answer.error_code)
        raise Rejoin

    def check_error(self, what: str, code: int) -> None:
        """Raise the exception for a client's reaction to an error."""
        error = ErrorCode(code)
        if error == ErrorCode.STALE_MEMBER_EPOCH:
            raise StaleEpoch
        if error in LOST:
            raise Rejoin
        super().check_error(what, code)
