"""Reads what a share group could acquire, before that is done: nothing is locked for a member that does not get it."""

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
from penstock_gateway.context import Gateway
from penstock_gateway.fetch.batch_assembly import FIRST_READ_BYTES_MIN, SCAN_BYTES, Cursor, start_of
from penstock_gateway.fetch.offset_index import is_mapped
from penstock_gateway.fetch.partition_reader import PartitionRead, fair_shares, read_partition_reads
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE
from penstock_gateway.share.batch_scan import ReadBatch, batches_of
from penstock_gateway.tail.tail_index import PartitionKey, PartitionView, view_of

log = structlog.get_logger()

# Of one answer, whatever the client asks for; it asks again at once. Others wait until one is put together.
READ_BYTES_MAX = 4 * 1024 * 1024
SHARE_BYTES_MIN = 1024 * 1024  # of one partition: below a usual batch there would often be nothing
SPARE = 2  # so many times the bytes that the wanted records have on average in their extents


@dataclass(slots=True)
class Offered:
    """A partition with offsets to be had, and what was read of it."""

    key: PartitionKey
    leader_epoch: int
    windows: list[OffsetRange]
    records: Buffer = b""
    batches: list[ReadBatch] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE

    @property
    def offset(self) -> int:
        """The first offset to be had."""
        return self.windows[0].first

    @property
    def end_offset(self) -> int:
        """Behind the last one."""
        return self.windows[-1].last + 1


@dataclass(slots=True)
class _Placed:
    """A partition with something to read before `end_offset`, and where to begin to look for it."""

    offered: Offered
    view: PartitionView
    cursor: Cursor
    end_offset: int
    log_end_offset: int  # for the group


async def read_offered(
    gateway: Gateway, offered: Sequence[Offered], *, bytes_max: int, records_max: int, read_committed: bool
) -> None:
    """Fill in what there is of each one's records, or why there is none; `Unavailable` if nobody can say."""
    bytes_max = max(min(bytes_max, READ_BYTES_MAX), 1)
    views = await _views(gateway, offered, bytes_max)
    placed: list[_Placed] = []
    for each, view in zip(offered, views, strict=True):
        log_end_offset = _end_offset(view, read_committed=read_committed)
        end_offset = min(each.end_offset, log_end_offset)
        if end_offset > each.offset and view.extents:
            cursor = await _place(gateway, each, view.extents[0])
            if cursor is not None:
                placed.append(_Placed(each, view, cursor, end_offset, log_end_offset))
    await _read(gateway, placed, bytes_max, records_max, read_committed=read_committed)


async def _read(
    gateway: Gateway, placed: Sequence[_Placed], bytes_max: int, records_max: int, *, read_committed: bool
) -> None:
    """Divide the answer's bytes; the first partition gets a batch whatever its size, so that each has its turn."""
    wishes = [_wish(each.offered, each.view, each.cursor, records_max) for each in placed]
    partition_reads: list[tuple[_Placed, PartitionRead]] = []
    for each, share in zip(placed, fair_shares(wishes, bytes_max, SHARE_BYTES_MIN), strict=True):
        if share >= BATCH_OVERHEAD or not partition_reads:
            partition_reads.append((each, _partition_read(each, share, whole_first=not partition_reads)))
    await read_partition_reads(gateway.reads, [partition_read for _, partition_read in partition_reads])
    bare = [_behind(each, partition_read) for each, partition_read in partition_reads if _is_bare(partition_read)]
    if bare:
        await read_partition_reads(gateway.reads, bare)
    for each, partition_read in partition_reads:
        _take(gateway, each.offered, partition_read, each.view, read_committed=read_committed)


def _is_bare(partition_read: PartitionRead) -> bool:
    """Whether it was looked at, and there is nothing before its end."""
    return partition_read.records is None and partition_read.error is None and partition_read.next_offset >= 0


def _behind(each: _Placed, partition_read: PartitionRead) -> PartitionRead:
    """The same, to the end of the log: the first batch that there is says that all before it is gone."""
    partition_read.end_offset = each.log_end_offset
    partition_read.read_bytes = max(partition_read.bytes_max, FIRST_READ_BYTES_MIN)
    return partition_read


async def _views(gateway: Gateway, offered: Sequence[Offered], bytes_max: int) -> list[PartitionView]:
    """What there is from the first offset on, from the tail where that knows, else from the sequencers."""
    views = {each.key: gateway.tail.lookup(each.key, each.offset, bytes_max) for each in offered}
    unknown = [each for each in offered if views[each.key] is None]
    if unknown:
        asked = [PlanPartition(*each.key, each.offset, bytes_max) for each in unknown]
        plan = await gateway.sequencer.query("plan", PlanQuery(0, asked, bytes_max), Plan)
        gateway.tail.learn(plan, [each.offset for each in unknown])
        views |= {each.key: view_of(found) for each, found in zip(unknown, plan.partitions, strict=True)}
        for each, found in zip(unknown, plan.partitions, strict=True):
            if found.rejection is not Rejection.NONE:
                views[each.key] = None
    return [views[each.key] or PartitionView(0, 0, 0, []) for each in offered]


def _end_offset(view: PartitionView, *, read_committed: bool) -> int:
    if not read_committed:
        return view.high_watermark
    known_end = view.aborted_end_offset  # what is beyond may be aborted, and we were not told
    return view.last_stable_offset if known_end < 0 else min(view.last_stable_offset, known_end)


async def _place(gateway: Gateway, each: Offered, first: Extent) -> Cursor | None:
    """Where to begin to look for the first offset; None if that could not be read."""
    hint = gateway.reads.hints.place(each.key, each.offset, first)
    if hint is not None or each.offset <= first.base_offset or not is_mapped(first):
        return hint or start_of(first)
    try:
        return await gateway.reads.maps.place(first, each.offset)
    except PenstockError as error:
        each.error = _read_error(gateway, each.key, error)
        return None


def _wish(each: Offered, view: PartitionView, cursor: Cursor, records_max: int) -> int:
    """How many bytes the records that are wanted are likely to need, found by their extents' averages."""
    unread_bytes = sum(extent.length for extent in view.extents) - (cursor.position - view.extents[0].position)
    offsets = view.extents[-1].last_offset + 1 - cursor.base_offset
    wanted = min(
        each.end_offset - cursor.base_offset, offsets, each.windows[-1].first - cursor.base_offset + records_max
    )
    return min(unread_bytes, max(SPARE * unread_bytes * wanted // max(offsets, 1), SHARE_BYTES_MIN))


def _partition_read(each: _Placed, share: int, *, whole_first: bool) -> PartitionRead:
    offered, cursor = each.offered, each.cursor
    must_search = cursor.base_offset < offered.offset
    return PartitionRead(
        key=offered.key,
        offset=offered.offset,
        end_offset=each.end_offset,
        leader_epoch=offered.leader_epoch,
        extents=each.view.extents,
        cursor=cursor,
        bytes_max=share,
        whole_first=whole_first,
        read_bytes=max(share, SCAN_BYTES if must_search else FIRST_READ_BYTES_MIN if whole_first else BATCH_OVERHEAD),
    )


def _take(
    gateway: Gateway, each: Offered, partition_read: PartitionRead, view: PartitionView, *, read_committed: bool
) -> None:
    if partition_read.error is not None:
        each.error = _read_error(gateway, each.key, partition_read.error)
    elif partition_read.records is not None:
        each.records = partition_read.records
        each.batches = batches_of(partition_read.records, view.aborted if read_committed else None)


def _read_error(gateway: Gateway, key: PartitionKey, error: PenstockError) -> ErrorCode:
    """Kafka's word for bytes that cannot be had now; none where a segment was replaced: then there is another plan."""
    gateway.tail.remove(key)
    if isinstance(error, NotFound):
        log.info("share_fetch_planned_again", topic_id=key[0].hex(), partition=key[1])
        return ErrorCode.NONE
    if isinstance(error, Corrupt):
        log.error("records_not_readable", topic_id=key[0].hex(), partition=key[1], error=str(error))
        return ErrorCode.KAFKA_STORAGE_ERROR
    return READ_UNAVAILABLE
