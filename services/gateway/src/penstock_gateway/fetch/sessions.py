"""Fetch sessions: a consumer of many partitions names only those that it changes, and gets only changed ones (KIP-227).

A session belongs to its connection and ends with it. It stands before access control and before the fetcher: both see
a request for all partitions of the session. So what a principal may read is checked again for each request.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock.kafkawire.api.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.clock import Entropy
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.fetch.fetch_partition import FIRST_VERSION_IDS
from penstock_gateway.fetch.limits import FetchSessionLimits
from penstock_gateway.kafka.client import Client
from penstock_gateway.metadata.admin_commands import TOPIC_NAME_LENGTH_MAX
from penstock_gateway.metadata.partition_lookup import TopicRef
from penstock_gateway.metrics import GatewayMetrics

FINAL_EPOCH, INITIAL_EPOCH, EPOCH_MAX = -1, 0, 2**31 - 1
ID_BYTES = 4

Handle = Callable[[Any, Client, int, FetchRequest], Awaitable[FetchResponse]]  # of Fetch
_State = tuple[int, int, int]  # a partition's high watermark, last stable offset and log start offset


class _Topic:
    """A topic's partitions in a session: the client's latest request for each, and the state that it knows."""

    __slots__ = ("known", "listed", "requests")

    def __init__(self) -> None:
        self.requests: dict[int, FetchPartition] = {}
        self.known: dict[int, _State] = {}
        self.listed: FetchTopic | None = None  # all requests as one element, None after a change


class FetchSession:
    """The partitions of one session, by topic, and the epoch of the next request."""

    def __init__(self, session_id: int, *, has_ids: bool) -> None:
        """`has_ids`: the client names topics by id, in all requests of the session."""
        self.session_id = session_id
        self.has_ids = has_ids
        self.partitions = 0
        self.has_long_names = False  # that no topic can have, so the session would take too much memory
        self._next_epoch = 1
        self._topics: dict[TopicRef, _Topic] = {}

    def advance(self, epoch: int) -> bool:
        """Expect the epoch behind this one; False if this one was not expected. 1 follows the largest one."""
        if epoch != self._next_epoch:
            return False
        self._next_epoch = epoch + 1 if epoch < EPOCH_MAX else 1
        return True

    async def change(self, request: FetchRequest, slices: Slices) -> None:
        """Take the partitions that the request names, and then remove those that it no longer wants."""
        async for topic in slices.of(request.topics):
            if not topic.partitions:
                continue
            self.has_long_names |= len(topic.topic) > TOPIC_NAME_LENGTH_MAX
            kept = self._topics.setdefault(topic.topic_id if self.has_ids else topic.topic, _Topic())
            kept.listed = None
            self.partitions -= len(kept.requests)
            async for partition in slices.of(topic.partitions):
                kept.requests[partition.partition] = partition
            self.partitions += len(kept.requests)
        async for forgotten in slices.of(request.forgotten_topics_data):
            ref: TopicRef = forgotten.topic_id if self.has_ids else forgotten.topic
            if ref in self._topics:
                await self._forget(ref, forgotten.partitions, slices)

    async def _forget(self, ref: TopicRef, partitions: list[int], slices: Slices) -> None:
        kept = self._topics[ref]
        kept.listed = None
        self.partitions -= len(kept.requests)
        async for partition in slices.of(partitions):
            kept.requests.pop(partition, None)
            kept.known.pop(partition, None)
        self.partitions += len(kept.requests)
        if not kept.requests:
            del self._topics[ref]

    def whole(self, request: FetchRequest) -> FetchRequest:
        """The request for all partitions of the session."""
        topics = [self._listed(ref, kept) for ref, kept in self._topics.items()]
        return msgspec.structs.replace(request, topics=topics, forgotten_topics_data=[])

    def _listed(self, ref: TopicRef, kept: _Topic) -> FetchTopic:
        if kept.listed is None:
            partitions = list(kept.requests.values())
            kept.listed = (
                FetchTopic(topic=ref, partitions=partitions)
                if isinstance(ref, str)
                else FetchTopic(topic_id=ref, partitions=partitions)
            )
        return kept.listed

    async def changed(self, response: FetchResponse, slices: Slices) -> FetchResponse:
        """The answer without partitions that have no records, no error, and the state that the client knows."""
        topics: list[FetchableTopicResponse] = []
        async for topic in slices.of(response.responses):
            known = self._topics[topic.topic_id if self.has_ids else topic.topic].known
            partitions = []
            async for data in slices.of(topic.partitions):
                if data.error_code:
                    known.pop(data.partition_index, None)
                    partitions.append(data)
                    continue
                state = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
                if data.records or known.get(data.partition_index) != state:
                    known[data.partition_index] = state
                    partitions.append(data)
            if partitions:
                topics.append(msgspec.structs.replace(topic, partitions=partitions))
        return msgspec.structs.replace(response, session_id=self.session_id, responses=topics)


class _Opened:
    """The session of a connection, if it has one."""

    def __init__(self) -> None:
        self.session: FetchSession | None = None
        self.is_first = True  # no session was opened so far


class FetchSessions:
    """The fetch sessions of all connections of a gateway. Together they have a limited number of partitions."""

    def __init__(self, entropy: Entropy, metrics: GatewayMetrics, limits: FetchSessionLimits | None = None) -> None:
        self._entropy = entropy
        self._metrics = metrics
        self._limits = limits or FetchSessionLimits()
        self._partitions = 0  # of all sessions

    def around(self, fetch: Callable[[Any, Client, int, Any], Awaitable[Any]]) -> Handle:
        """The handler of Fetch that knows sessions, around the one that answers requests for all their partitions."""

        async def handle(gateway: Any, client: Client, version: int, request: FetchRequest) -> FetchResponse:
            slices = Slices()
            session = await self._session_of(client, version, request, slices)
            if isinstance(session, ErrorCode):
                return FetchResponse(error_code=session)
            if client.fetches_nothing:
                return FetchResponse(session_id=0 if session is None else session.session_id)
            whole = request if session is None else session.whole(request)
            response: FetchResponse = await fetch(gateway, client, version, whole)
            return response if session is None else await session.changed(response, slices)

        return handle

    async def _session_of(
        self, client: Client, version: int, request: FetchRequest, slices: Slices
    ) -> FetchSession | ErrorCode | None:
        """The session of a request, with the request's changes; None without one. Or an error."""
        opened = client.part(_Opened)
        session = opened.session
        has_ids = version >= FIRST_VERSION_IDS
        is_whole = request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH)
        if is_whole:
            session = FetchSession(self._new_id(), has_ids=has_ids) if request.session_epoch == INITIAL_EPOCH else None
        elif session is None or session.session_id != request.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif session.has_ids != has_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        elif not session.advance(request.session_epoch):
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self._close(opened)
        if session is None:
            return None
        await session.change(request, slices)
        if not session.partitions:
            return None
        if not self._has_room(session):
            # The client sends a request for all partitions, and gets no session then.
            return None if is_whole else ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self._open(client, opened, session)
        return session

    def _has_room(self, session: FetchSession) -> bool:
        limits = self._limits
        is_small = session.partitions <= limits.session_partitions_max and not session.has_long_names
        return is_small and self._partitions + session.partitions <= limits.partitions_max

    def _open(self, client: Client, opened: _Opened, session: FetchSession) -> None:
        if opened.is_first:
            opened.is_first = False
            client.on_close.append(lambda: self._close(opened))
        opened.session = session
        self._count(session.partitions)

    def _close(self, opened: _Opened) -> None:
        if opened.session is not None:
            self._count(-opened.session.partitions)
            opened.session = None

    def _count(self, change: int) -> None:
        self._partitions += change
        self._metrics.fetch_session_partitions.set(self._partitions)

    def _new_id(self) -> int:
        return int.from_bytes(self._entropy.take(ID_BYTES)) % EPOCH_MAX + 1
