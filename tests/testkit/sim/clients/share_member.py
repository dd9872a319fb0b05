"""Members of a share group (KIP-932): they acquire records, usually acknowledge them, stall, leave and die."""

import asyncio
from collections import defaultdict

from penstock.kafkawire.api import share_acknowledge, share_fetch
from penstock.kafkawire.api.share_acknowledge import ShareAcknowledgeRequest
from penstock.kafkawire.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock.kafkawire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import batches, size_bytes
from tests.testkit.sim.checkers.oracle import Oracle, is_same
from tests.testkit.sim.checkers.share_group_checker import Key, ShareGroupChecker
from tests.testkit.sim.clients.kafka import (
    REQUEST_TIMEOUT_S,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
    Disconnected,
    KafkaClient,
    KafkaConnection as Connection,
)

MEMBER_ID_BYTES = 8
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
TYPES = (ACCEPT,) * 16 + (RELEASE,) * 2 + (REJECT, RENEW, None)  # None: no acknowledgement, so the lock ends
JOINS, LEAVES = 0, -1
OPENS, CLOSES = 0, -1
VERSION_RENEW = 2
EXACT = 1
WAIT_MS = 500
RECORDS_MAX = (1, 5, 500, 500)
BYTES_MAX = (1, 3_000, 1_000_000, 1_000_000)
MOVE_SHARE, DIE_SHARE, LEAVE_SHARE, STALL_SHARE = 0.03, 0.12, 0.08, 0.08  # of rounds
ASIDE_SHARE = 0.3  # of rounds in which acknowledgements have their own request
DEAD_S = (0.1, 2.0)
STALL_S = (0.5, 4.0)  # a lock lasts a second, a session three
LOST = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND))
# Errors while a service does not know the answer or does not answer.
TEMPORARY = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

Acknowledgements = dict[int, int]  # acknowledge types by offset


class ShareMember:
    """One member, with all its restarts."""

    def __init__(
        self, client: KafkaClient, oracle: Oracle, checker: ShareGroupChecker, group_id: str, topics: list[str]
    ) -> None:
        self.name = client.name
        self.only_accepts = False  # it accepts all records, and does not leave
        self.accidents = 0  # deaths, leaves and stalls
        self._client = client
        self._stream = client.stream
        self._oracle = oracle
        self._checker = checker
        self._group_id = group_id
        self._topics = topics
        self._version = self._stream.choice((1, 2))
        self._begin_life()

    def _begin_life(self) -> None:
        self._member_id = f"{self.name}-{self._stream.randbytes(MEMBER_ID_BYTES).hex()}"
        self._reset()

    def _reset(self) -> None:
        self._epoch = JOINS
        self._assigned: list[Key] = []
        self._session: list[Key] = []
        self._session_epoch = OPENS
        self._heartbeat_due_s = 0.0
        self._unsent: dict[Key, Acknowledgements] = defaultdict(dict)

    async def run(self) -> None:
        """Take part in the group until cancelled."""
        while True:
            connection = await self._client.connect()
            self._session_epoch, self._heartbeat_due_s = OPENS, 0.0
            try:
                while self.only_accepts or self._stream.random() >= MOVE_SHARE:
                    await self._take_part(connection)
            except Disconnected:
                await self._client.back_off()
            finally:
                connection.close()
            await asyncio.sleep(0)

    async def _take_part(self, connection: Connection) -> None:
        if asyncio.get_running_loop().time() >= self._heartbeat_due_s:
            await self._heartbeat(connection)
        if not self._assigned:
            await asyncio.sleep(max(self._heartbeat_due_s - asyncio.get_running_loop().time(), 0))
            return
        await self._fetch(connection)
        dice = self._stream.random() if not self.only_accepts else 1.0
        self.accidents += dice < DIE_SHARE + LEAVE_SHARE + STALL_SHARE
        if dice < DIE_SHARE:
            await self._crash(connection)
        elif dice < DIE_SHARE + LEAVE_SHARE:
            await self._leave(connection)
        elif dice < DIE_SHARE + LEAVE_SHARE + STALL_SHARE:
            await asyncio.sleep(self._stream.uniform(*STALL_S))
        if self._unsent and (self.only_accepts or self._stream.random() < ASIDE_SHARE):
            await self._acknowledge(connection)

    async def _heartbeat(self, connection: Connection) -> None:
        topics = self._topics if self._epoch == JOINS else None
        request = ShareGroupHeartbeatRequest(
            self._group_id, self._member_id, self._epoch, subscribed_topic_names=topics
        )
        answer = await connection.ask(SHARE_GROUP_HEARTBEAT, 1, request)
        error = ErrorCode(answer.error_code)
        if error in LOST:
            self._oracle.observed(self.name, f"joins again after {error.name}")
            self._reset()
            return
        self._check("a heartbeat", error)
        self._epoch = answer.member_epoch
        self._heartbeat_due_s = asyncio.get_running_loop().time() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            assigned = answer.assignment.topic_partitions
            self._assigned = [(each.topic_id, number) for each in assigned for number in each.partitions]
            self._oracle.observed(self.name, f"has {len(self._assigned)} partitions")

    async def _fetch(self, connection: Connection) -> None:
        """Fetch records, usually with acknowledgements of earlier ones."""
        since = self._checker.sequence
        if self._session != self._assigned:
            self._session, self._session_epoch = self._assigned, OPENS
        sent: dict[Key, Acknowledgements] = {}
        if self._session_epoch != OPENS:
            sent = {key: self._unsent.pop(key) for key in self._session if key in self._unsent}
        records_max = self._stream.choice(RECORDS_MAX)
        is_exact = self._version >= VERSION_RENEW and self._stream.random() < 0.5
        request = self._request(sent, records_max, is_exact=is_exact)
        self._session_epoch += 1
        answer: ShareFetchResponse = await connection.ask(
            SHARE_FETCH, self._version, request, REQUEST_TIMEOUT_S + WAIT_MS / 1000
        )
        self._check("a fetch", ErrorCode(answer.error_code))
        count = sum(self._take(each, part, sent, since) for each in answer.responses for part in each.partitions)
        if is_exact and count > records_max:
            self._oracle.rejected(self.name, f"a fetch of {records_max} records", f"{count} came")

    def _request(self, sent: dict[Key, Acknowledgements], records_max: int, *, is_exact: bool) -> ShareFetchRequest:
        named = self._session if self._session_epoch == OPENS else list(sent)
        topics: dict[bytes, list[share_fetch.FetchPartition]] = {}
        for key in named:
            ranges = [share_fetch.AcknowledgementBatch(*each) for each in _ranges(sent.get(key, {}))]
            topics.setdefault(key[0], []).append(share_fetch.FetchPartition(key[1], ranges))
        bytes_max = self._stream.choice(BYTES_MAX)
        renews = _renews(sent) and self._version >= VERSION_RENEW  # then the request asks for no records
        return ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=0 if renews else WAIT_MS,
            min_bytes=0 if renews else 1,
            max_bytes=0 if renews else bytes_max,
            max_records=0 if renews else records_max,
            share_acquire_mode=EXACT if is_exact else 0,
            is_renew_ack=renews,
            topics=[share_fetch.FetchTopic(*each) for each in topics.items()],
        )

    def _take(
        self,
        topic: share_fetch.ShareFetchableTopicResponse,
        part: share_fetch.PartitionData,
        sent: dict[Key, Acknowledgements],
        since: int,
    ) -> int:
        """Take the answer for one partition; the number of acquired records."""
        key = (topic.topic_id, part.partition_index)
        if part.error_code:
            self._check(f"a fetch of {part.partition_index}", ErrorCode(part.error_code), may_continue=True)
        self._take_result(key, sent.get(key, {}), ErrorCode(part.acknowledge_error_code), since)
        there = self._offsets(key, b"" if part.records is None else bytes(part.records))
        count = 0
        for each in part.acquired_records:
            acquired = (each.first_offset, each.last_offset, each.delivery_count)
            self._checker.check_acquired(self.name, self._member_id, key, acquired, since)
            for offset in range(each.first_offset, each.last_offset + 1):
                if offset not in there:
                    self._oracle.rejected(
                        self.name, f"{part.partition_index} at {offset}", "it came without its record"
                    )
                self._decide(key, offset)
                count += 1
        return count

    def _decide(self, key: Key, offset: int) -> None:
        acknowledge_type = ACCEPT if self.only_accepts else self._stream.choice(TYPES)
        if acknowledge_type == RENEW and self._version < VERSION_RENEW:
            acknowledge_type = ACCEPT
        if acknowledge_type is not None:
            self._unsent[key][offset] = acknowledge_type

    def _offsets(self, key: Key, data: bytes) -> dict[int, None]:
        """Check fetched records with the journal and the store; their offsets."""
        log, found = self._oracle.logs.get(key), dict[int, None]()
        try:
            for position, header in batches(data):
                truth = None if log is None else log.at(header.base_offset)
                if truth is None or not is_same(truth, header, data[position : position + size_bytes(header)]):
                    self._oracle.rejected(
                        self.name, f"{key[1]} at {header.base_offset}", "it differs from the stored batch"
                    )
                found |= dict.fromkeys(range(header.base_offset, header.base_offset + header.last_offset_delta + 1))
        except DecodeError as error:
            self._oracle.rejected(self.name, f"fetched records of {key[1]}", str(error))
        return found

    async def _acknowledge(self, connection: Connection, *, closes: bool = False) -> None:
        """Send the acknowledgements in their own request."""
        if self._session_epoch == OPENS:
            return
        since, sent, self._unsent = self._checker.sequence, self._unsent, defaultdict(dict)
        topics: dict[bytes, list[share_acknowledge.AcknowledgePartition]] = {}
        for key, types in sent.items():
            ranges = [share_acknowledge.AcknowledgementBatch(*each) for each in _ranges(types)]
            topics.setdefault(key[0], []).append(share_acknowledge.AcknowledgePartition(key[1], ranges))
        request = ShareAcknowledgeRequest(
            self._group_id,
            self._member_id,
            CLOSES if closes else self._session_epoch,
            is_renew_ack=_renews(sent) and self._version >= VERSION_RENEW,
            topics=[share_acknowledge.AcknowledgeTopic(*each) for each in topics.items()],
        )
        self._session_epoch = OPENS if closes else self._session_epoch + 1
        answer = await connection.ask(SHARE_ACKNOWLEDGE, self._version, request)
        self._check("acknowledgements", ErrorCode(answer.error_code))
        for topic in answer.responses:
            for part in topic.partitions:
                key = (topic.topic_id, part.partition_index)
                self._take_result(key, sent.get(key, {}), ErrorCode(part.error_code), since)

    def _take_result(self, key: Key, sent: Acknowledgements, error: ErrorCode, since: int) -> None:
        """Take the result of acknowledgements. They are not repeated: their locks may have ended."""
        if error is ErrorCode.NONE:
            self._checker.check_acknowledged(self.name, self._member_id, key, sent.items(), since)
            renewed = [offset for offset, acknowledge_type in sent.items() if acknowledge_type == RENEW]
            if renewed:
                self._unsent[key].update(dict.fromkeys(renewed, ACCEPT))
        elif error is not ErrorCode.INVALID_RECORD_STATE:
            self._check(f"acknowledgements of {key[1]}", error, may_continue=True)

    async def _leave(self, connection: Connection) -> None:
        if self._stream.random() < 0.7:
            await self._acknowledge(connection, closes=True)
        request = ShareGroupHeartbeatRequest(self._group_id, self._member_id, LEAVES)
        self._reset()
        answer = await connection.ask(SHARE_GROUP_HEARTBEAT, 1, request)
        error = ErrorCode(answer.error_code)
        if error not in LOST:
            self._check("a leave", error)

    async def _crash(self, connection: Connection) -> None:
        """Die, sometimes with a fetch in flight."""
        self._oracle.observed(self.name, "died")
        if self._session_epoch != OPENS:
            connection.send(SHARE_FETCH, self._version, self._request({}, RECORDS_MAX[-1], is_exact=False))
            await asyncio.sleep(self._stream.choice((0.0, 0.01, 0.05)))
        self._begin_life()
        connection.close()
        await asyncio.sleep(self._stream.uniform(*DEAD_S))
        raise Disconnected("dead")

    def _check(self, what: str, error: ErrorCode, *, may_continue: bool = False) -> None:
        """Raise the exception for a client's reaction to an error; `may_continue` ignores temporary errors."""
        if error is ErrorCode.NONE:
            return
        if error not in TEMPORARY:
            self._oracle.rejected(self.name, what, error.name)
        if not may_continue:
            raise Disconnected(f"retry: {error.name}")


def _renews(sent: dict[Key, Acknowledgements]) -> bool:
    return any(each == RENEW for types in sent.values() for each in types.values())


def _ranges(sent: Acknowledgements) -> list[tuple[int, int, list[int]]]:
    """Runs of offsets, with the type of each offset."""
    found: list[tuple[int, int, list[int]]] = []
    for offset in sorted(sent):
        if found and found[-1][1] + 1 == offset:
            first, _, types = found[-1]
            found[-1] = (first, offset, [*types, sent[offset]])
        else:
            found.append((offset, offset, [sent[offset]]))
    return found
