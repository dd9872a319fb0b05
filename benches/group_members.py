"""Group members that only heartbeat: one connection each, and cheap enough for hundreds in one process.

They heartbeat as stock clients do, each at its own time, and learn of rebalances by their heartbeats only. Each member
reports its partitions to `Roll`, which checks whether the group's assignment is complete. The leader of a classic group
assigns partitions round robin in the order of member ids.
"""

import asyncio
import struct
import time
from typing import Any

import msgspec

from penstock.kafkawire.api import API_TABLE, decode_response, encode_request, is_flexible
from penstock.kafkawire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.kafkawire.api.heartbeat import HeartbeatRequest
from penstock.kafkawire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.kafkawire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from penstock.kafkawire.error_codes import ErrorCode

JOIN, HEARTBEAT, SYNC, CONSUMER_HEARTBEAT = 11, 12, 14, 68
SESSION_TIMEOUT_MS = 45_000  # the default of stock clients
REBALANCE_TIMEOUT_MS = 300_000
HEARTBEAT_S = 3.0
RETRY_S = 0.1  # the default retry.backoff.ms of stock clients
RESPONSE_HEAD_BYTES = {True: 5, False: 4}  # correlation id, and no tagged fields


class Connection:
    """One connection to a gateway, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, key: int, version: int, request: msgspec.Struct) -> Any:
        """Send one request, and return the answer."""
        flexible = is_flexible(API_TABLE[key], version)
        head = struct.pack(">hhih", key, version, 0, -1) + (b"\0" if flexible else b"")
        frame = head + encode_request(key, version, request)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        size_bytes = int.from_bytes(await self._reader.readexactly(4))
        body = memoryview(await self._reader.readexactly(size_bytes))[RESPONSE_HEAD_BYTES[flexible] :]
        return decode_response(key, version, body)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class Roll:
    """The partitions and the generation of each member, and the time when the assignment became complete."""

    def __init__(self, partitions: int) -> None:
        self.members = 0  # the expected number
        self.complete_s = 0.0  # when the assignment last became complete
        self._partitions = partitions
        self._held: dict[int, tuple[int, list[int]]] = {}
        self._completed = asyncio.Event()

    def record(self, member: int, generation: int, partitions: list[int]) -> None:
        """Record that the member has these partitions now."""
        self._held[member] = (generation, partitions)
        if self.is_complete:
            self.complete_s = time.perf_counter()
            self._completed.set()

    def remove(self, member: int) -> None:
        """Remove a member that must join again."""
        self._held.pop(member, None)

    @property
    def is_complete(self) -> bool:
        """Whether all members have the same generation and every partition has one member, in even numbers.

        For a moment the first member has all partitions, and the others none at the same epoch. The last condition
        excludes this assignment.
        """
        held = [partition for _, partitions in self._held.values() for partition in partitions]
        one = len({generation for generation, _ in self._held.values()}) == 1
        most = max((len(partitions) for _, partitions in self._held.values()), default=0)
        if most * self.members >= self._partitions + self.members:
            return False
        return one and len(self._held) == self.members and sorted(held) == list(range(self._partitions))

    async def until_complete(self, timeout_s: float) -> None:
        """Wait until the assignment is complete."""
        async with asyncio.timeout(timeout_s):
            while not self.is_complete:
                self._completed.clear()
                await self._completed.wait()


class ClassicMember:
    """A member with the classic protocol."""

    def __init__(self, number: int, roll: Roll, topic: str, partitions: int, heartbeat_s: float) -> None:
        self.joined_s = 0.0  # when it sent its first join
        self._number = number
        self._roll = roll
        self._partitions = partitions
        self._heartbeat_s = heartbeat_s
        self._member_id = ""
        name = topic.encode()
        self._subscription = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)

    async def run(self, host: str, port: int, group_id: str) -> None:
        """Be a member of the group until cancelled."""
        connection = Connection(*await asyncio.open_connection(host, port))
        try:
            self.joined_s = time.perf_counter()
            while True:
                generation = await self._join(connection, group_id)
                while generation is not None:
                    # Clients do not heartbeat at the same time.
                    await asyncio.sleep(self._heartbeat_s * (0.5 + (self._number % 10) / 10))
                    request = HeartbeatRequest(group_id, generation, self._member_id)
                    if (await connection.ask(HEARTBEAT, 4, request)).error_code:
                        self._roll.remove(self._number)
                        break
        finally:
            connection.close()

    async def _join(self, connection: Connection, group_id: str) -> int | None:
        """The generation that the member joined; None if it must join again."""
        protocols = [JoinGroupRequestProtocol("range", self._subscription)]
        times = (SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        joined: JoinGroupResponse
        while True:
            request = JoinGroupRequest(group_id, *times, self._member_id, None, "consumer", protocols)
            joined = await connection.ask(JOIN, 9, request)
            if not joined.error_code:
                break
            self._member_id = joined.member_id
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                await asyncio.sleep(RETRY_S)
        self._member_id = joined.member_id
        named = ("consumer", joined.protocol_name)
        place = (group_id, joined.generation_id, joined.member_id, None)
        synced: SyncGroupResponse = await connection.ask(
            SYNC, 5, SyncGroupRequest(*place, *named, self._assignments(joined))
        )
        if synced.error_code:
            return None
        assigned = msgspec.msgpack.decode(bytes(synced.assignment), type=list[int])
        self._roll.record(self._number, joined.generation_id, assigned)
        return joined.generation_id

    def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The assignments that the leader sends. Only members decode them, so the format is not Kafka's."""
        ids = sorted(member.member_id for member in joined.members)
        return [
            SyncGroupRequestAssignment(
                member_id, msgspec.msgpack.encode(list(range(place, self._partitions, len(ids))))
            )
            for place, member_id in enumerate(ids)
        ]


class ConsumerMember:
    """A member with the protocol of KIP-848."""

    def __init__(self, number: int, roll: Roll, topic: str, member_id: str) -> None:
        self.joined_s = 0.0
        self._number = number
        self._roll = roll
        self._topic = topic
        self._member_id = member_id
        self._epoch = 0
        self._owned: list[TopicPartitions] = []

    async def run(self, host: str, port: int, group_id: str) -> None:
        """Be a member of the group until cancelled."""
        connection = Connection(*await asyncio.open_connection(host, port))
        try:
            self.joined_s = time.perf_counter()
            has_changed = True
            while True:
                answer = await connection.ask(CONSUMER_HEARTBEAT, 1, self._request(group_id, has_changed))
                has_changed = self._take(answer)
                if answer.error_code:
                    await asyncio.sleep(RETRY_S)
                elif not has_changed:
                    await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
        finally:
            connection.close()

    def _request(self, group_id: str, has_changed: bool) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(group_id, self._member_id, self._epoch)
        if self._epoch == 0:
            return msgspec.structs.replace(
                request,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        return msgspec.structs.replace(request, topic_partitions=self._owned) if has_changed else request

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> bool:
        """Take in an answer; return whether the member must report new partitions at once."""
        if answer.error_code:
            lost = answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            self._epoch, self._owned = (0, []) if lost else (self._epoch, self._owned)
            return self._epoch == 0
        self._epoch = answer.member_epoch
        has_changed = answer.assignment is not None and answer.assignment.topic_partitions != self._owned
        if answer.assignment is not None:
            self._owned = answer.assignment.topic_partitions
        self._roll.record(self._number, self._epoch, [each for topic in self._owned for each in topic.partitions])
        return has_changed
