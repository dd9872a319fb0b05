"""Fetch: batches of several partitions in one answer, after a wait if the consumer asks for one (KIP-74)."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from penstock.contracts.errors import Corrupt, PenstockError
from penstock.kafkawire.api.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import BATCH_OVERHEAD
from penstock.objectstore.errors import NotFound
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.concurrency.slices import Slices
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_gateway.fetch.batch_assembly import Cursor
from penstock_gateway.fetch.catch_up_throttle import CatchUpSlot
from penstock_gateway.fetch.fetch_partition import (
    READ_COMMITTED,
    RequestedPartition,
    available_bytes,
    readable_end,
    readable_extents,
    requested_partitions,
    topic_response,
)
from penstock_gateway.fetch.limits import FetchLimits
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.fetch.partition_finder import PartitionFinder
from penstock_gateway.fetch.partition_read import PartitionRead, divide_bytes, first_read_bytes, unread_bytes
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE, TopicRef
from penstock_gateway.tail.tail_index import PartitionKey, PartitionView
from penstock_gateway.tail.tail_subscriber import TailSubscriber
from penstock_gateway.topic_bytes import TopicBytes

log = structlog.get_logger()

UNKNOWN_PARTITION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
ROTATION_BYTES = 4


class Fetcher:
    """Answers Fetch requests: finds the extents, waits if they are too few, reads, and assembles the answer."""

    def __init__(
        self,
        *,
        log_reader: LogReader,
        tail: TailSubscriber,
        topics: TopicCache,
        sequencer: SequencerClient,
        response_memory: ResponseMemory,
        clock: Clock,
        entropy: Entropy,
        topic_bytes: TopicBytes,
        limits: FetchLimits | None = None,
        traces: Traces = NO_TRACES,
    ) -> None:
        self.traces = traces
        self.log_reader = log_reader
        self.tail = tail
        self.response_memory = response_memory
        self.entropy = entropy
        self.topic_bytes = topic_bytes
        self.limits = limits or FetchLimits()
        self.finder = PartitionFinder(
            log_reader=log_reader, tail=tail, topics=topics, sequencer=sequencer, clock=clock, limits=self.limits
        )

    async def fetch(self, client: Client, version: int, request: FetchRequest) -> FetchResponse:
        """The answer to one request for all its partitions, with errors by partition; `sessions` handles sessions."""
        slices = Slices()
        partitions = await requested_partitions(version, request, slices)
        return await _Fetch(self, client, request, partitions, slices).answer()


class HasFetcher(Protocol):
    @property
    def fetcher(self) -> Fetcher: ...


class _Fetch:
    """One Fetch request, from its arrival to its answer."""

    def __init__(
        self,
        parts: Fetcher,
        client: Client,
        request: FetchRequest,
        partitions: list[RequestedPartition],
        slices: Slices,
    ) -> None:
        self._parts = parts
        self._client = client
        self._request = request
        self._isolation_level = request.isolation_level
        self._limits = parts.limits
        self._log_reader = parts.log_reader
        self._tail = parts.tail
        self._finder = parts.finder
        self._partitions = partitions  # in the order of the request
        self._slices = slices
        self._rotated = self._rotate()  # in the order in which they are served
        self._bytes_max = max(min(request.max_bytes, self._limits.fetch_bytes_max), 1)

    async def answer(self) -> FetchResponse:
        traces = self._parts.traces
        with traces.stage("fetch plan", partitions=len(self._partitions)):
            woken_s = await self._wait()
        if woken_s is not None:
            self._log_reader.throttle.record_tailing_read()
        if await self._parts.response_memory.wait(self._log_reader.limits.memory_wait_s):
            with traces.stage("fetch read"):
                await self._read(self._rotated, self._bytes_max, is_first=True)
                await self._read_again()
        if woken_s is not None:
            self._tail.record_answered(woken_s)
        return await self._response()

    def _rotate(self) -> list[RequestedPartition]:
        """Start at a random partition, so that no partition is served last every time."""
        if len(self._partitions) < 2:
            return self._partitions
        first = int.from_bytes(self._parts.entropy.take(ROTATION_BYTES)) % len(self._partitions)
        return self._partitions[first:] + self._partitions[:first]

    # Waiting

    async def _wait(self) -> float | None:
        """Wait until min_bytes are readable, an error must be reported, or max_wait_ms ends.

        Return the wake-up time by the loop's clock, or None if it did not wait for new data.
        """
        loop = asyncio.get_running_loop()
        woken_s: float | None = None
        wait_ms_max = self._limits.large_wait_ms_max if self._client.has_large_request else self._limits.wait_ms_max
        wait_ms = max(min(self._request.max_wait_ms, wait_ms_max), 0)
        deadline_s = loop.time() + wait_ms / 1000
        while True:
            await self._finder.locate(self._rotated, self._slices)
            with self._tail.watch(dict.fromkeys(each.key for each in self._rotated if each.key is not None)) as watch:
                await self._finder.look(self._rotated, self._bytes_max, self._isolation_level, self._slices)
                if self._is_enough() or self._client.is_leaving or loop.time() >= deadline_s:
                    return woken_s
                # Extents are valid for a limited time only (`located_s`): compaction may have replaced them.
                soon_s = min(deadline_s, loop.time() + self._limits.located_s)
                if not await watch.until(soon_s) and soon_s == deadline_s:
                    return None
                woken_s = watch.woken_s

    def _is_enough(self) -> bool:
        """Whether the answer can be sent without a wait; an error is always sent at once."""
        if not self._rotated or any(each.error for each in self._rotated):
            return True
        found = 0
        needed = min(self._request.min_bytes, self._bytes_max)
        for each in self._rotated:
            if found >= needed:
                break
            found += available_bytes(each, self._isolation_level)
        return found >= needed

    # Reading

    async def _read(self, partitions: Sequence[RequestedPartition], bytes_max: int, *, is_first: bool) -> None:
        """Read the readable extents. If it `is_first` in the answer, the first batch may exceed the byte budget."""
        readable = [each async for each in self._slices.of(partitions) if readable_extents(each, self._isolation_level)]
        if not readable:
            return
        placed = await self._place_all(readable)
        catch_up = [pair for pair in placed if self._log_reader.is_catch_up(pair[1].extent)]
        if catch_up:
            tailing = [pair for pair in placed if not self._log_reader.is_catch_up(pair[1].extent)]
            short_max = self._catch_up_bytes_max(bytes_max)
            # Keep the random order, so that catch-up reads are not starved by tailing reads.
            if await self._wait_for_throttle(catch_up, short_max, tailing, has_waiting=len(placed) < len(partitions)):
                bytes_max = short_max
            else:
                placed = tailing
        await self._log_reader.read(self._divide(placed, bytes_max, is_first=is_first))
        for each, _ in placed:
            if each.read is not None and each.read.error is not None:
                each.read_error = each.read.error

    def _catch_up_bytes_max(self, bytes_max: int) -> int:
        limits = self._limits
        is_throttled = self._log_reader.throttle.is_active
        return min(bytes_max, limits.throttled_bytes_max if is_throttled else limits.catch_up_bytes_max)

    async def _wait_for_throttle(
        self,
        catch_up: Sequence[tuple[RequestedPartition, Cursor]],
        bytes_max: int,
        tailing: Sequence[tuple[RequestedPartition, Cursor]],
        *,
        has_waiting: bool,
    ) -> bool:
        """Wait for the throttle; return whether old data may be read now.

        Partitions with new data do not wait for it. Partitions that may soon have new data wait only shortly.
        """
        timeout_s = self._limits.tailing_queue_timeout_s if has_waiting else self._limits.queue_timeout_s
        size_bytes = min(sum(_wanted_bytes(catch_up)), bytes_max)
        throttle, slot = self._log_reader.throttle, self._client.part(CatchUpSlot)
        if not slot.ends_with_connection:
            slot.ends_with_connection = True
            self._client.on_close.append(lambda: throttle.leave(slot))
        return await throttle.wait(slot, size_bytes, 0 if tailing else timeout_s)

    async def _read_again(self) -> None:
        """Read partitions again whose segments were deleted: compaction replaced them after the plan was made."""
        gone = [each for each in self._rotated if isinstance(each.read_error, NotFound)]
        if not gone:
            return
        log.info("fetch_planned_again", partitions=len(gone))
        for each in gone:
            each.read, each.read_error = None, None
        await self._finder.look_again(gone, self._bytes_max, self._isolation_level)
        taken = [each.read.records_bytes for each in self._rotated if each.read is not None and each.read.records]
        await self._read(gone, max(self._bytes_max - sum(taken), 0), is_first=not taken)

    async def _place_all(self, readable: Sequence[RequestedPartition]) -> list[tuple[RequestedPartition, Cursor]]:
        """The cursor at which the search for each partition's offset begins, without partitions whose index failed."""
        cursors = [self._known_place(each) for each in readable]
        if None in cursors:
            unknown = [each for each, cursor in zip(readable, cursors, strict=True) if cursor is None]
            indexed = iter(await asyncio.gather(*(self._indexed_place(each) for each in unknown)))
            cursors = [next(indexed) if cursor is None else cursor for cursor in cursors]
        return [(each, cursor) for each, cursor in zip(readable, cursors, strict=True) if cursor is not None]

    def _known_place(self, each: RequestedPartition) -> Cursor | None:
        assert each.key is not None and each.view is not None, "only partitions that exist are readable"
        return self._log_reader.known_place(each.key, each.request.fetch_offset, each.view.extents[0])

    async def _indexed_place(self, each: RequestedPartition) -> Cursor | None:
        assert each.key is not None and each.view is not None, "only partitions that exist are readable"
        try:
            return await self._log_reader.place(each.key, each.request.fetch_offset, each.view.extents[0])
        except PenstockError as error:
            each.read_error = error
            return None

    def _divide(
        self, placed: Sequence[tuple[RequestedPartition, Cursor]], bytes_max: int, *, is_first: bool
    ) -> list[PartitionRead]:
        """Divide the answer's bytes over the partitions, in their order.

        Only the first partition with data gets a batch that exceeds its share: one batch per request (KIP-74).
        """
        reads: list[PartitionRead] = []
        shares = divide_bytes(_wanted_bytes(placed), bytes_max, self._limits.share_bytes_min)
        for (each, cursor), share in zip(placed, shares, strict=True):
            whole_first = is_first and not reads
            if share >= BATCH_OVERHEAD or whole_first:
                each.read = self._partition_read(each, cursor, share, whole_first=whole_first)
                reads.append(each.read)
        return reads

    def _partition_read(
        self, each: RequestedPartition, cursor: Cursor, share: int, *, whole_first: bool
    ) -> PartitionRead:
        assert each.key is not None and each.view is not None, "only partitions that exist get bytes"
        offset = each.request.fetch_offset
        return PartitionRead(
            key=each.key,
            offset=offset,
            end_offset=readable_end(each.view, self._isolation_level),
            leader_epoch=each.leader_epoch,
            extents=each.view.extents,
            cursor=cursor,
            bytes_max=share,
            whole_first=whole_first,
            read_bytes=first_read_bytes(
                offset, cursor, share, self._log_reader.limits.scan_bytes, whole_first=whole_first
            ),
        )

    # Answering

    async def _response(self) -> FetchResponse:
        responses: list[FetchableTopicResponse] = []
        last: TopicRef | None = None
        async for each in self._slices.of(self._partitions):
            if each.topic != last:
                last = each.topic
                responses.append(topic_response(last))
            responses[-1].partitions.append(self._partition_answer(each))
        return FetchResponse(responses=responses)

    def _partition_answer(self, each: RequestedPartition) -> PartitionData:
        read, view = each.read, each.view
        if each.read_error is not None and each.key is not None:
            each.error = self._read_error(each.key, each.read_error)
        if each.error or view is None:
            return PartitionData(
                partition_index=each.request.partition,
                error_code=each.error,
                high_watermark=-1,
                aborted_transactions=[] if each.error in UNKNOWN_PARTITION else None,  # as Kafka answers
                records=b"",
            )
        records = b"" if read is None or read.records is None else read.records
        if read is not None and records:
            self._parts.topic_bytes.add_read(each.name, read.records_bytes)
        return PartitionData(
            partition_index=each.request.partition,
            high_watermark=view.high_watermark,
            last_stable_offset=view.last_stable_offset,
            log_start_offset=view.log_start_offset,
            aborted_transactions=_aborted(read, view) if self._isolation_level == READ_COMMITTED else None,
            records=records,
        )

    def _read_error(self, key: PartitionKey, error: PenstockError) -> ErrorCode:
        """Kafka's code for bytes that cannot be read now. Their extent may be replaced, so it is looked up again."""
        self._tail.remove(key)
        if isinstance(error, Corrupt | NotFound):
            log.error("records_not_readable", topic_id=key[0].hex(), partition=key[1], error=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return READ_UNAVAILABLE


def _wanted_bytes(placed: Sequence[tuple[RequestedPartition, Cursor]]) -> list[int]:
    return [min(_unread(each, cursor), each.bytes_max) for each, cursor in placed]


def _unread(each: RequestedPartition, cursor: Cursor) -> int:
    assert each.view is not None, "a cursor points into extents"
    return unread_bytes(each.view.extents, cursor)


def _aborted(read: PartitionRead | None, view: PartitionView) -> list[AbortedTransaction]:
    """The aborted transactions with records in the answer."""
    if read is None or read.records is None:
        return []
    return [
        AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in view.aborted
        if aborted.first_offset < read.next_offset
    ]
