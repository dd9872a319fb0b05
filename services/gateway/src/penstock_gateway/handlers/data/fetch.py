"""Fetch: batches from several partitions at once, waiting for them if the consumer wishes to (KIP-74, KIP-227)."""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from penstock.contracts.commands import Tick
from penstock.contracts.errors import Corrupt, PenstockError, Unavailable
from penstock.contracts.queries.log import PartitionPlan, Plan, PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import BATCH_OVERHEAD
from penstock.objectstore.errors import NotFound
from penstock_gateway.context import Client, Gateway
from penstock_gateway.fetch.batch_assembly import FIRST_READ_BYTES_MIN, SCAN_BYTES, Cursor, start_of
from penstock_gateway.fetch.fetch_partition import (
    READ_COMMITTED,
    Wanted,
    available_bytes,
    partition_max_bytes,
    readable_end,
    readable_extents,
)
from penstock_gateway.fetch.offset_index import is_mapped
from penstock_gateway.fetch.partition_reader import PartitionRead, fair_shares, read_partition_reads
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE, locate, rejection_error
from penstock_gateway.segments.segment_reader import ROOM_WAIT_S
from penstock_gateway.tail.tail_index import BELIEVED_S, PartitionKey, PartitionView, view_of

log = structlog.get_logger()

FETCH_BYTES_MAX = 16 * 1024 * 1024  # of one answer, whatever the client asks for; it asks again at once
# With history in it: who follows the end of the log waits until such an answer is put together, and not much longer.
# Small ones cost more for each byte, as batches of which they have a part only are read again.
HISTORY_BYTES_MAX, HELD_HISTORY_BYTES_MAX = 4 * 1024 * 1024, 1024 * 1024
# For one's turn to read history; then there is an answer without records, and the client asks again. There may soon be
# news of other partitions for who follows those.
PATIENCE_S, FOLLOWERS_PATIENCE_S = 1.0, 0.1
WAIT_MS_MAX = 300_000  # nobody needs longer, and a mistaken client holds no connection for ever
BARRIER_DEADLINE_S = 5.0
FINAL_EPOCH, INITIAL_EPOCH = -1, 0  # of requests that name all their partitions, with and without wish for a session
UNKNOWN_PARTITION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
FIRST_VERSION_IDS = 13  # from here on topics have ids in place of names (KIP-516)
ROTATION_BYTES = 4
# A share below a usual batch would often be too small for even one; rather fewer partitions get one in each answer.
SHARE_BYTES_MIN = 1024 * 1024


async def handle(gateway: Gateway, client: Client, version: int, request: FetchRequest) -> FetchResponse:
    if request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH):  # we give no sessions, so there is none to go on with
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    by_id = version >= FIRST_VERSION_IDS
    wanted = [
        Wanted(topic.topic_id if by_id else topic.topic, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    rotated = _rotated(gateway, wanted)
    bytes_max = max(min(request.max_bytes, FETCH_BYTES_MAX), 1)
    woken_s = await _wait(gateway, client, request, rotated, bytes_max)
    if woken_s is not None:
        gateway.reads.pace.record_followed()
    if await gateway.unsent.until_room(ROOM_WAIT_S):
        await _read(gateway, client, rotated, bytes_max, request.isolation_level, is_first=True)
        await _read_again(gateway, client, rotated, bytes_max, request.isolation_level)
    if woken_s is not None:
        gateway.tail.record_answered(woken_s)
    return _response(gateway, request, wanted)


def _rotated(gateway: Gateway, wanted: list[Wanted]) -> list[Wanted]:
    """Whoever comes first gets its share first: by chance, so that no partition is always behind the same others."""
    if len(wanted) < 2:
        return wanted
    first = int.from_bytes(gateway.entropy.take(ROTATION_BYTES)) % len(wanted)
    return wanted[first:] + wanted[:first]


async def _read(
    gateway: Gateway, client: Client, wanted: Sequence[Wanted], bytes_max: int, isolation_level: int, *, is_first: bool
) -> None:
    """Read what there is; the first of it is read whatever its size if it `is_first` in the answer."""
    readable = [each for each in wanted if readable_extents(each, isolation_level)]
    if not readable:
        return
    placed = await _place_all(gateway, readable)
    history = [pair for pair in placed if gateway.reads.is_history(pair[1].extent)]
    if history:
        fresh = [pair for pair in placed if not gateway.reads.is_history(pair[1].extent)]
        short_max = min(bytes_max, HELD_HISTORY_BYTES_MAX if gateway.reads.pace.is_held else HISTORY_BYTES_MAX)
        patience_s = 0 if fresh else PATIENCE_S if len(placed) == len(wanted) else FOLLOWERS_PATIENCE_S
        size_bytes = min(sum(_wishes(history)), short_max)
        # Those who are due stay in the order of chance: where there is much news, history gets its part of it all.
        if await gateway.reads.pace.until_due(client.history_turn, size_bytes, patience_s):
            bytes_max = short_max
        else:
            placed = fresh
    partition_reads = _divide(placed, bytes_max, isolation_level, is_first=is_first)
    await read_partition_reads(gateway.reads, partition_reads)
    for each, _ in placed:
        if each.partition_read is not None and each.partition_read.error is not None:
            each.read_error = each.partition_read.error


async def _read_again(
    gateway: Gateway, client: Client, wanted: Sequence[Wanted], bytes_max: int, isolation_level: int
) -> None:
    """Once more for those whose segments are not there any more: others have taken their place since the plan."""
    gone = [each for each in wanted if isinstance(each.read_error, NotFound)]
    if not gone:
        return
    log.info("fetch_planned_again", partitions=len(gone))
    for each in gone:
        assert each.key is not None, "what was read was found"
        gateway.tail.remove(each.key)
        each.partition_read, each.read_error = None, None
    await _plan(gateway, [(each, each.key) for each in gone if each.key is not None], bytes_max)
    _cut(gone, isolation_level)
    taken = [
        len(each.partition_read.records)
        for each in wanted
        if each.partition_read is not None and each.partition_read.records
    ]
    await _read(gateway, client, gone, max(bytes_max - sum(taken), 0), isolation_level, is_first=not taken)


async def _wait(
    gateway: Gateway, client: Client, request: FetchRequest, wanted: Sequence[Wanted], bytes_max: int
) -> float | None:
    """Return when there is enough to read, something to say, or no more time; and when news came, if it waited."""
    loop = asyncio.get_running_loop()
    woken_s: float | None = None
    deadline_s = loop.time() + max(min(request.max_wait_ms, WAIT_MS_MAX), 0) / 1000
    while True:
        await _locate(gateway, wanted)
        with gateway.tail.watch(dict.fromkeys(each.key for each in wanted if each.key is not None)) as watch:
            await _look(gateway, wanted, bytes_max, request.isolation_level)
            if _is_enough(request, wanted, bytes_max) or client.is_leaving or loop.time() >= deadline_s:
                return woken_s
            # What was found is not believed for ever; see there.
            soon_s = min(deadline_s, loop.time() + BELIEVED_S)
            if not await watch.until(soon_s) and soon_s == deadline_s:
                return None
            woken_s = watch.woken_s


async def _locate(gateway: Gateway, wanted: Sequence[Wanted]) -> None:
    located = await locate(gateway, (each.topic for each in wanted))
    for each in wanted:
        asked = each.asked
        topic = located.partition(each.topic, asked.partition, asked.current_leader_epoch)
        if isinstance(topic, ErrorCode):
            each.key, each.error = None, topic
        else:
            each.key, each.error = (topic.topic_id, asked.partition), ErrorCode.NONE
            each.leader_epoch = topic.leader_epoch


async def _look(gateway: Gateway, wanted: Sequence[Wanted], bytes_max: int, isolation_level: int) -> None:
    """What there is to read now, from the tail where that knows, else from the sequencers."""
    unknown = []
    for each in wanted:
        if each.key is None:
            continue
        each.view = gateway.tail.lookup(
            each.key, each.asked.fetch_offset, min(each.asked.partition_max_bytes, bytes_max)
        )
        if each.view is None:
            unknown.append((each, each.key))
    if unknown:
        await _plan(gateway, unknown, bytes_max)
    _cut(wanted, isolation_level)


def _cut(wanted: Sequence[Wanted], isolation_level: int) -> None:
    """Leave extents away in which there is nothing that a fetch of this level may read."""
    if isolation_level != READ_COMMITTED:
        return
    for each in wanted:
        view = each.view
        end_offset = -1 if view is None else readable_end(view, isolation_level)
        if view is not None and view.extents and view.extents[-1].base_offset >= end_offset:
            extents = [extent for extent in view.extents if extent.base_offset < end_offset]
            each.view = msgspec.structs.replace(view, extents=extents)


async def _plan(gateway: Gateway, unknown: list[tuple[Wanted, PartitionKey]], bytes_max: int) -> None:
    """Ask the sequencers what there is to read."""
    try:
        await _plan_up_to_date(gateway, unknown, bytes_max)
    except Unavailable as error:
        log.warning("fetch_not_planned", partitions=len(unknown), error=str(error))
        for each, _ in unknown:
            each.error = READ_UNAVAILABLE


async def _plan_up_to_date(gateway: Gateway, unknown: list[tuple[Wanted, PartitionKey]], bytes_max: int) -> None:
    plan = await _ask(gateway, unknown, bytes_max)
    ahead = [
        pair for pair, partition in zip(unknown, plan.partitions, strict=True) if _is_ahead(pair[0].asked, partition)
    ]
    if not ahead:
        return
    # The client is ahead of the replica that answered, perhaps because it read through another gateway. A command has
    # its place in the journal behind all that anybody can have read: its answer makes the next plan know that, too.
    await gateway.sequencer.command([Tick(gateway.clock.now_ms())], deadline_s=BARRIER_DEADLINE_S)
    await _ask(gateway, ahead, bytes_max)


def _is_ahead(asked: FetchPartition, partition: PartitionPlan) -> bool:
    return partition.rejection is Rejection.OFFSET_OUT_OF_RANGE and asked.fetch_offset > partition.high_watermark


async def _ask(gateway: Gateway, unknown: list[tuple[Wanted, PartitionKey]], bytes_max: int) -> Plan:
    ahead = [gateway.reads.ahead.plan_bytes_for(key, each.asked.fetch_offset) for each, key in unknown]
    partitions = [
        PlanPartition(*key, each.asked.fetch_offset, min(partition_max_bytes(each), bytes_max) + more)
        for (each, key), more in zip(unknown, ahead, strict=True)
    ]
    plan = await gateway.sequencer.query("plan", PlanQuery(0, partitions, bytes_max + sum(ahead)), Plan)
    gateway.tail.learn(plan, [each.asked.fetch_offset for each, _ in unknown])
    for (each, _), partition in zip(unknown, plan.partitions, strict=True):
        each.error = rejection_error(each.topic, partition.rejection)
        each.view = view_of(partition)
    return plan


def _is_enough(request: FetchRequest, wanted: Sequence[Wanted], bytes_max: int) -> bool:
    """Whether the answer need not wait; an error never does."""
    if not wanted or any(each.error for each in wanted):
        return True
    found = 0
    needed = min(request.min_bytes, bytes_max)
    for each in wanted:
        if found >= needed:
            break
        found += available_bytes(each, request.isolation_level)
    return found >= needed


async def _place_all(gateway: Gateway, readable: Sequence[Wanted]) -> list[tuple[Wanted, Cursor]]:
    """Where to begin to look for each one's offset, for those of which that can be known."""
    cursors = [_known_place(gateway, each) for each in readable]
    if None in cursors:
        unknown = [each for each, cursor in zip(readable, cursors, strict=True) if cursor is None]
        mapped = iter(await asyncio.gather(*(_mapped_place(gateway, each) for each in unknown)))
        cursors = [next(mapped) if cursor is None else cursor for cursor in cursors]
    return [(each, cursor) for each, cursor in zip(readable, cursors, strict=True) if cursor is not None]


def _known_place(gateway: Gateway, each: Wanted) -> Cursor | None:
    """A place that takes no reading to know: where the client got to, or the start of a short extent."""
    assert each.key is not None and each.view is not None, "nothing is readable of a partition that was not found"
    first, offset = each.view.extents[0], each.asked.fetch_offset
    hint = gateway.reads.hints.place(each.key, offset, first)
    if hint is None and (offset <= first.base_offset or not is_mapped(first)):
        return start_of(first)
    return hint


async def _mapped_place(gateway: Gateway, each: Wanted) -> Cursor | None:
    assert each.view is not None, "there is no place in nothing"
    try:
        return await gateway.reads.maps.place(each.view.extents[0], each.asked.fetch_offset)
    except PenstockError as error:
        each.read_error = error
        return None


def _divide(
    placed: Sequence[tuple[Wanted, Cursor]], bytes_max: int, isolation_level: int, *, is_first: bool
) -> list[PartitionRead]:
    """What each partition gets of the answer's bytes, in their order.

    The first one with data gets a batch whatever its size, and no other does: one batch per request (KIP-74).
    """
    wishes = _wishes(placed)
    partition_reads: list[PartitionRead] = []
    shares = fair_shares(wishes, bytes_max, SHARE_BYTES_MIN)
    for (each, cursor), share in zip(placed, shares, strict=True):
        whole_first = is_first and not partition_reads
        if share >= BATCH_OVERHEAD or whole_first:
            each.partition_read = _partition_read(each, cursor, share, isolation_level, whole_first=whole_first)
            partition_reads.append(each.partition_read)
    return partition_reads


def _wishes(placed: Sequence[tuple[Wanted, Cursor]]) -> list[int]:
    return [min(_unread_bytes(each, cursor), partition_max_bytes(each)) for each, cursor in placed]


def _unread_bytes(each: Wanted, cursor: Cursor) -> int:
    assert each.view is not None, "a cursor into nothing"
    extents = each.view.extents
    return sum(extent.length for extent in extents) - (cursor.position - extents[0].position)


def _partition_read(
    each: Wanted, cursor: Cursor, share: int, isolation_level: int, *, whole_first: bool
) -> PartitionRead:
    assert each.key is not None and each.view is not None, "a share of nothing"
    must_search = cursor.base_offset < each.asked.fetch_offset
    return PartitionRead(
        key=each.key,
        offset=each.asked.fetch_offset,
        end_offset=readable_end(each.view, isolation_level),
        leader_epoch=each.leader_epoch,
        extents=each.view.extents,
        cursor=cursor,
        bytes_max=share,
        whole_first=whole_first,
        read_bytes=max(share, SCAN_BYTES if must_search else FIRST_READ_BYTES_MIN if whole_first else BATCH_OVERHEAD),
    )


def _response(gateway: Gateway, request: FetchRequest, wanted: Sequence[Wanted]) -> FetchResponse:
    answers = iter([_answer(gateway, each, request.isolation_level) for each in wanted])
    return FetchResponse(
        responses=[
            FetchableTopicResponse(topic.topic, topic.topic_id, [next(answers) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _answer(gateway: Gateway, each: Wanted, isolation_level: int) -> PartitionData:
    partition_read, view = each.partition_read, each.view
    if each.read_error is not None and each.key is not None:
        each.error = _read_error(gateway, each.key, each.read_error)
    if each.error or view is None:
        return PartitionData(
            partition_index=each.asked.partition,
            error_code=each.error,
            high_watermark=-1,
            aborted_transactions=[] if each.error in UNKNOWN_PARTITION else None,  # as Kafka has it
            records=b"",
        )
    return PartitionData(
        partition_index=each.asked.partition,
        high_watermark=view.high_watermark,
        last_stable_offset=view.last_stable_offset,
        log_start_offset=view.log_start_offset,
        aborted_transactions=_aborted(each, view) if isolation_level == READ_COMMITTED else None,
        records=b"" if partition_read is None or partition_read.records is None else partition_read.records,
    )


def _aborted(each: Wanted, view: PartitionView) -> list[AbortedTransaction]:
    """Those with records in the answer."""
    partition_read = each.partition_read
    if partition_read is None or partition_read.records is None:
        return []
    return [
        AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in view.aborted
        if aborted.first_offset < partition_read.next_offset
    ]


def _read_error(gateway: Gateway, key: PartitionKey, error: PenstockError) -> ErrorCode:
    """Kafka's word for bytes that cannot be had now. What was known of their place may be old, and is asked anew."""
    gateway.tail.remove(key)
    if isinstance(error, Corrupt | NotFound):
        log.error("records_not_readable", topic_id=key[0].hex(), partition=key[1], error=str(error))
        return ErrorCode.KAFKA_STORAGE_ERROR
    return READ_UNAVAILABLE
