"""Reads the records that a share group can acquire, before it acquires them: so no record is locked in vain."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from penstock.contracts.batches import Extent
from penstock.contracts.commands import OffsetRange
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.primitives import Buffer
from penstock.kafkawire.records import BATCH_OVERHEAD
from penstock.objectstore.errors import NotFound
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock_gateway.fetch.batch_assembly import FIRST_READ_BYTES_MIN, Cursor
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.fetch.partition_read import PartitionRead, divide_bytes, first_read_bytes, unread_bytes
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE
from penstock_gateway.share.batch_scan import ReadBatch, batches_of
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.tail.tail_index import PartitionKey, PartitionView, view_of
from penstock_gateway.tail.tail_subscriber import TailSubscriber

log = structlog.get_logger()


@dataclass(slots=True)
class Offer:
    """A partition with offsets that the group may acquire, and the records that were read."""

    key: PartitionKey
    topic: str
    leader_epoch: int
    windows: list[OffsetRange]
    records: Buffer = b""
    batches: list[ReadBatch] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE
    is_postponed: bool = False  # it was not read for lack of memory, so nothing is known about its records

    @property
    def offset(self) -> int:
        """The first offset that may be acquired."""
        return self.windows[0].first

    @property
    def end_offset(self) -> int:
        """The offset behind the last one."""
        return self.windows[-1].last + 1


@dataclass(slots=True)
class _Placed:
    """A partition with records to read before `end_offset`, and the place to start the search."""

    offer: Offer
    view: PartitionView
    cursor: Cursor
    end_offset: int
    log_end_offset: int  # as far as the group may read


class ShareReader:
    """Reads offers, in the tail index or by plans, through the log reader."""

    def __init__(
        self, *, log_reader: LogReader, tail: TailSubscriber, sequencer: SequencerClient, limits: ShareLimits
    ) -> None:
        self._log_reader = log_reader
        self._tail = tail
        self._sequencer = sequencer
        self._limits = limits

    async def read(self, offers: Sequence[Offer], *, bytes_max: int, records_max: int, read_committed: bool) -> None:
        """Fill in the records or the error of each offer; `Unavailable` if no sequencer answers."""
        bytes_max = max(min(bytes_max, self._limits.read_bytes_max), 1)
        views = await self._views(offers, bytes_max)
        placed: list[_Placed] = []
        for each, view in zip(offers, views, strict=True):
            log_end_offset = _end_offset(view, read_committed=read_committed)
            end_offset = min(each.end_offset, log_end_offset)
            if end_offset > each.offset and view.extents:
                cursor = await self._place(each, view.extents[0])
                if cursor is not None:
                    placed.append(_Placed(each, view, cursor, end_offset, log_end_offset))
        await self._read(placed, bytes_max, records_max, read_committed=read_committed)

    async def _read(self, placed: Sequence[_Placed], bytes_max: int, records_max: int, *, read_committed: bool) -> None:
        """Read within the byte limit. The first partition always gets one batch, so that no partition starves."""
        wanted = [self._wanted_bytes(each, records_max) for each in placed]
        reads: list[tuple[_Placed, PartitionRead]] = []
        shares = divide_bytes(wanted, bytes_max, self._limits.share_bytes_min)
        for each, share in zip(placed, shares, strict=True):
            if share >= BATCH_OVERHEAD or not reads:
                reads.append((each, self._partition_read(each, share, whole_first=not reads)))
        await self._log_reader.read([read for _, read in reads])
        empty = [_to_log_end(each, read) for each, read in reads if read.is_empty]
        if empty:
            await self._log_reader.read(empty)
        for each, read in reads:
            self._take(each.offer, read, each.view, read_committed=read_committed)

    async def _views(self, offers: Sequence[Offer], bytes_max: int) -> list[PartitionView]:
        """The extents from each first offset on: from the tail index if it has them, else from a plan."""
        views = {each.key: self._tail.lookup(each.key, each.offset, bytes_max) for each in offers}
        unknown = [each for each in offers if views[each.key] is None]
        if unknown:
            asked = [PlanPartition(*each.key, each.offset, bytes_max) for each in unknown]
            plan = await self._sequencer.query("plan", PlanQuery(0, asked, bytes_max), Plan)
            self._tail.learn(plan, [each.offset for each in unknown])
            views |= {each.key: view_of(found) for each, found in zip(unknown, plan.partitions, strict=True)}
            for each, found in zip(unknown, plan.partitions, strict=True):
                if found.rejection is not Rejection.NONE:
                    views[each.key] = None
        return [views[each.key] or PartitionView(0, 0, 0, []) for each in offers]

    async def _place(self, each: Offer, first: Extent) -> Cursor | None:
        """The place to start the search for the first offset; None if the read failed."""
        try:
            return await self._log_reader.place(each.key, each.offset, first)
        except PenstockError as error:
            each.error = self._read_error(each.key, error)
            return None

    def _wanted_bytes(self, each: _Placed, records_max: int) -> int:
        """An estimate of the bytes of the wanted records, from the average record size of their extents."""
        offer, cursor, extents = each.offer, each.cursor, each.view.extents
        unread = unread_bytes(extents, cursor)
        offsets = extents[-1].last_offset + 1 - cursor.base_offset
        last_first = offer.windows[-1].first - cursor.base_offset
        wanted = min(offer.end_offset - cursor.base_offset, offsets, last_first + records_max)
        likely = self._limits.spare_factor * unread * wanted // max(offsets, 1)
        return min(unread, max(likely, self._limits.share_bytes_min))

    def _partition_read(self, each: _Placed, share: int, *, whole_first: bool) -> PartitionRead:
        offer = each.offer
        return PartitionRead(
            key=offer.key,
            offset=offer.offset,
            end_offset=each.end_offset,
            leader_epoch=offer.leader_epoch,
            extents=each.view.extents,
            cursor=each.cursor,
            bytes_max=share,
            whole_first=whole_first,
            read_bytes=first_read_bytes(
                offer.offset, each.cursor, share, self._log_reader.limits.scan_bytes, whole_first=whole_first
            ),
        )

    def _take(self, each: Offer, read: PartitionRead, view: PartitionView, *, read_committed: bool) -> None:
        if read.error is not None:
            each.error = self._read_error(each.key, read.error)
        elif read.records is not None:
            each.records = _joined(read.records)
            each.batches = batches_of(each.records, view.aborted if read_committed else None)
        else:
            each.is_postponed = not read.is_empty

    def _read_error(self, key: PartitionKey, error: PenstockError) -> ErrorCode:
        """Kafka's code for a failed read; `NONE` if the segment was replaced, because the next plan has the new one."""
        self._tail.remove(key)
        if isinstance(error, NotFound):
            log.info("share_fetch_planned_again", topic_id=key[0].hex(), partition=key[1])
            return ErrorCode.NONE
        if isinstance(error, Corrupt):
            log.error("records_not_readable", topic_id=key[0].hex(), partition=key[1], error=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return READ_UNAVAILABLE


def _joined(records: Sequence[Buffer]) -> Buffer:
    """The records as one buffer, without a copy if they are in one."""
    return records[0] if len(records) == 1 else b"".join(records)


def _to_log_end(each: _Placed, read: PartitionRead) -> PartitionRead:
    """The same read up to the end of the log: the first batch found shows that all offsets before it are gone."""
    read.end_offset = each.log_end_offset
    read.read_bytes = max(read.bytes_max, FIRST_READ_BYTES_MIN)
    return read


def _end_offset(view: PartitionView, *, read_committed: bool) -> int:
    if not read_committed:
        return view.high_watermark
    known_end = view.aborted_end_offset  # transactions beyond it may be aborted, and the plan does not list them
    return view.last_stable_offset if known_end < 0 else min(view.last_stable_offset, known_end)
