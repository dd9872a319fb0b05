"""ShareFetch: a member of a share group says what became of records, and acquires others (KIP-932).

Records are read first and acquired then, in one journal entry with what the member had to say. So nothing is locked for
a member that cannot have it, and one that has it knows how often it was delivered. Where several gateways read the same
records the machine gives each to one member, and the others look again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from penstock.contracts.commands import (
    AcquiredRange,
    JudgedRange,
    Outcome,
    RecordsShared,
    Rejected,
    SharePartition,
    Verdict,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.share import SharePartitionRef, SharePartitionsQuery, SharePartitionsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.primitives import Buffer
from penstock_gateway.context import Client, Gateway
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.metadata.partition_lookup import NO_EPOCH, READ_UNAVAILABLE, Located, locate
from penstock_gateway.segments.segment_reader import ROOM_WAIT_S
from penstock_gateway.share.ack_validation import FIRST_VERSION_RENEW
from penstock_gateway.share.acknowledge import (
    Acknowledged,
    acknowledge,
    acknowledged_of,
    record_judged,
    sets_free,
    topic_ids,
)
from penstock_gateway.share.batch_scan import Wanted, choose, with_acquired
from penstock_gateway.share.commands import level_error, share_records
from penstock_gateway.share.partition_queue import Turn
from penstock_gateway.share.reader import Offered, read_offered
from penstock_gateway.share.sessions import CLOSING_EPOCH, OPENING_EPOCH, SESSION_PARTITIONS_MAX, ShareSession
from penstock_gateway.tail.tail_index import PartitionKey
from penstock_gateway.tail.tail_subscriber import TailWatch

log = structlog.get_logger()

WAIT_MS_MAX = 300_000  # nobody needs longer, and a mistaken client holds no connection for ever
RECORDS_MAX = 10_000  # of one answer, whatever the client asks for
# Records come back by time and through other gateways, too, of which nobody tells. So each member asks once a second.
LOOK_AGAIN_S = 1.0
ROUNDS_MAX = 16  # in a row that lead to no records without a wait: only gaps, or records that others got first
EXACT_LIMIT = 1  # the acquire mode in which no record more is wanted (KIP-1206)
UNKNOWN_LEADER = LeaderIdAndEpoch(-1, -1)  # the client asks for it if it has to know


@dataclass(slots=True)
class _Round:
    """A request and what has come of it so far."""

    request: ShareFetchRequest
    group_id: str
    member_id: str
    session: ShareSession
    keys: list[PartitionKey]  # of the session, none if the request closes it
    acknowledged: dict[PartitionKey, Acknowledged]
    is_exact: bool
    unsaid: list[Acknowledged] = field(default_factory=list)  # what is still to be told to the machine
    errors: dict[PartitionKey, ErrorCode] = field(default_factory=dict)
    fetched: dict[PartitionKey, PartitionData] = field(default_factory=dict)
    lock_ms: int = 0
    has_progressed: bool = False  # so that it is worth while to look again at once

    @property
    def is_closing(self) -> bool:
        return self.request.share_session_epoch == CLOSING_EPOCH

    @property
    def records_max(self) -> int:
        return min(self.request.max_records, RECORDS_MAX)

    @property
    def is_over(self) -> bool:
        return bool(self.fetched or any(self.errors.values()))


async def handle(gateway: Gateway, client: Client, version: int, request: ShareFetchRequest) -> ShareFetchResponse:
    error = level_error(gateway)
    if not error and (not request.group_id or not request.member_id):
        error = ErrorCode.INVALID_REQUEST
    if error:
        return ShareFetchResponse(error_code=error)
    session = _session(client, request)
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    located = await locate(gateway, topic_ids(request.topics))
    renews = version >= FIRST_VERSION_RENEW and request.is_renew_ack
    acknowledged = acknowledged_of(request.topics, located, renews=renews)
    round_ = _Round(
        request,
        request.group_id or "",
        request.member_id or "",
        session,
        [] if request.share_session_epoch == CLOSING_EPOCH else list(session.partitions),
        acknowledged,
        is_exact=version >= FIRST_VERSION_RENEW and request.share_acquire_mode == EXACT_LIMIT,
        unsaid=[each for each in acknowledged.values() if not each.error],
    )
    if not round_.keys or round_.records_max <= 0 or request.max_bytes <= 0:
        await _say(gateway, round_)
    else:
        await _fetch(gateway, client, round_)
    return _response(round_)


def _session(client: Client, request: ShareFetchRequest) -> ShareSession | ErrorCode:
    """The session, new, with its changes, or just closed; or why there is none."""
    assert request.group_id and request.member_id, "looked at before"
    member, epoch = (request.group_id, request.member_id), request.share_session_epoch
    if epoch == CLOSING_EPOCH:
        return client.share_sessions.close(member)
    if epoch == OPENING_EPOCH:
        if any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions):
            return ErrorCode.INVALID_REQUEST
        session = client.share_sessions.open(member)
    else:
        session = client.share_sessions.go_on(member, epoch)
    if isinstance(session, ErrorCode):
        return session
    session.change(
        ((topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions),
        ((topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions),
    )
    if len(session.partitions) > SESSION_PARTITIONS_MAX:
        client.share_sessions.close(member)
        return ErrorCode.INVALID_REQUEST
    return session


async def _say(gateway: Gateway, round_: _Round) -> None:
    """Tell the machine what the member had to say, without a wish."""
    said, round_.unsaid = round_.unsaid, []
    ended = round_.session if round_.is_closing else None
    lock_ms = await acknowledge(gateway, round_.group_id, round_.member_id, said, ended=ended)
    round_.lock_ms = lock_ms or round_.lock_ms


async def _fetch(gateway: Gateway, client: Client, round_: _Round) -> None:
    """Return when there are records, something to say, or no more time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + max(min(round_.request.max_wait_ms, WAIT_MS_MAX), 0) / 1000
    rounds = 0
    while True:
        located = await _locate(gateway, round_)
        turns = gateway.share_turns
        with gateway.tail.watch(round_.keys) as watch, turns.waiting(round_.group_id, round_.keys, watch):
            round_.has_progressed = False
            await _try(gateway, round_, located, watch)
            if round_.unsaid:
                await _say(gateway, round_)
            now_s = loop.time()
            if round_.is_over or client.is_leaving or now_s >= deadline_s:
                return
            rounds = rounds + 1 if round_.has_progressed else 0
            if not 0 < rounds < ROUNDS_MAX and await watch.until(min(deadline_s, now_s + LOOK_AGAIN_S)):
                gateway.reads.pace.record_followed()


async def _locate(gateway: Gateway, round_: _Round) -> Located:
    located = await locate(gateway, (topic_id for topic_id, _ in round_.keys))
    for key in round_.keys:
        topic = located.partition(*key, NO_EPOCH)
        round_.errors[key] = topic if isinstance(topic, ErrorCode) else ErrorCode.NONE
    return located


async def _try(gateway: Gateway, round_: _Round, located: Located, watch: TailWatch) -> None:
    """Acquire what there is now, as far as it is nobody else's turn."""
    if not await gateway.unsent.until_room(ROOM_WAIT_S):
        return
    good = [key for key in round_.keys if not round_.errors[key]]
    # Whoever comes first is read first: by chance, so that no partition is always behind the same others.
    first = int.from_bytes(gateway.entropy.take(4)) % max(len(good), 1)
    with gateway.share_turns.take(round_.group_id, good[first:] + good[:first], watch) as turn:
        if not turn.keys:
            return
        try:
            await _acquire(gateway, round_, located, turn)
        except Unavailable as error:
            log.warning("share_fetch_failed", partitions=len(turn.keys), error=str(error))
            round_.errors |= dict.fromkeys(turn.keys, READ_UNAVAILABLE)


async def _acquire(gateway: Gateway, round_: _Round, located: Located, turn: Turn) -> None:
    view = await _ask(gateway, round_, turn.keys)
    if view.rejection is Rejection.NONE:
        turn.bare.update(key for key, each in zip(turn.keys, view.partitions, strict=True) if not each.windows)
    offered = _offers(view, round_, located, turn.keys)
    if not offered:
        return
    await read_offered(
        gateway,
        offered,
        bytes_max=round_.request.max_bytes,
        records_max=round_.records_max,
        read_committed=view.read_committed,
    )
    wanted: list[tuple[Offered, Wanted]] = []
    left = round_.records_max
    for each in offered:
        if each.error:
            round_.errors[each.key] = each.error
        elif left > 0 and (chosen := choose(each.batches, each.windows, left)) is not None:
            wanted.append((each, chosen))
            left -= chosen.records_max
    if wanted:
        await _command(gateway, round_, wanted)


async def _ask(gateway: Gateway, round_: _Round, keys: Sequence[PartitionKey]) -> SharePartitionsView:
    refs = [SharePartitionRef(*key) for key in keys]
    query = SharePartitionsQuery(0, round_.group_id, round_.member_id, refs)
    return await gateway.sequencer.query("share_partitions", query, SharePartitionsView)


def _offers(view: SharePartitionsView, round_: _Round, located: Located, keys: Sequence[PartitionKey]) -> list[Offered]:
    """The partitions with something to be had, as many as are likely to do.

    Somebody who is no member gets nothing, and no error: ShareFetch has none for that, a heartbeat does.
    """
    if view.rejection is not Rejection.NONE:
        return []
    offered = []
    left = round_.records_max
    for key, partition in zip(keys, view.partitions, strict=True):
        if left <= 0:
            break
        if partition.rejection is Rejection.NONE and partition.windows:
            topic = located.partition(*key, NO_EPOCH)
            assert not isinstance(topic, ErrorCode), "only good ones are looked at"
            offered.append(Offered(key, topic.leader_epoch, partition.windows))
            left -= sum(window.last - window.first + 1 for window in partition.windows)
    return offered


async def _command(gateway: Gateway, round_: _Round, wanted: Sequence[tuple[Offered, Wanted]]) -> None:
    """Acquire what was read, in one entry with what the member had to say."""
    said = {each.key: each for each in round_.unsaid}
    limit = round_.records_max if round_.is_exact else sum(chosen.records_max for _, chosen in wanted)
    partitions = [
        SharePartition(
            *each.key,
            judged=said.pop(each.key).judged if each.key in said else [],
            first=each.offset,
            last=chosen.last,
            records_max=min(chosen.records_max, limit),
            gaps=chosen.gaps,
        )
        for each, chosen in wanted
    ]
    partitions += [SharePartition(*each.key, each.judged) for each in said.values()]
    told, round_.unsaid = round_.unsaid, []
    try:
        outcome = await _outcome(gateway, round_, partitions, limit)
    except Unavailable as error:
        for each in told:
            each.error, each.message = READ_UNAVAILABLE, str(error)
        raise
    assert isinstance(outcome, RecordsShared | Rejected), f"an unexpected answer to a member: {outcome}"
    if isinstance(outcome, Rejected):  # no member any more: what it had to say is judged alone
        round_.unsaid = told
        return
    places = {(each.topic_id, each.partition): place for place, each in enumerate(partitions)}
    for acknowledged in told:
        record_judged(gateway, acknowledged, outcome, places[acknowledged.key])
    if sets_free(told):
        gateway.share_turns.wake(round_.group_id)
    round_.lock_ms = outcome.lock_duration_ms
    round_.has_progressed = True
    for (offered, _), shared in zip(wanted, outcome.partitions, strict=False):
        if shared.acquired:
            round_.session.record_acquired(outcome.acquisition)
            acquired = [AcquiredRecords(each.first, each.last, each.delivery_count) for each in shared.acquired]
            _count(gateway, shared.acquired)
            records = with_acquired(offered.records, offered.batches, shared.acquired)
            round_.fetched[offered.key] = _data(offered.key, records, acquired)
        elif shared.rejection is Rejection.UNKNOWN_TOPIC:
            round_.errors[offered.key] = error_of(shared.rejection)


def _count(gateway: Gateway, acquired: Sequence[AcquiredRange]) -> None:
    for each in acquired:
        gateway.metrics.share_acquired[each.delivery_count > 1].inc(each.last - each.first + 1)


async def _outcome(gateway: Gateway, round_: _Round, partitions: Sequence[SharePartition], limit: int) -> Outcome:
    """What came of the command; if the connection ends meanwhile, nobody can be told what the member got."""
    sent = asyncio.ensure_future(
        share_records(gateway, round_.group_id, round_.member_id, partitions, records_max=limit)
    )
    try:
        return await asyncio.shield(sent)
    except asyncio.CancelledError:
        await _give_back(gateway, round_, partitions, sent)
        raise


async def _give_back(
    gateway: Gateway, round_: _Round, partitions: Sequence[SharePartition], sent: asyncio.Future[Outcome]
) -> None:
    """Let others have at once what was acquired for nobody: else it would be locked for half a minute."""
    try:
        outcome = await sent
        if isinstance(outcome, RecordsShared):
            unread = [
                SharePartition(wanted.topic_id, wanted.partition, [_unread(each) for each in shared.acquired])
                for wanted, shared in zip(partitions, outcome.partitions, strict=True)
                if shared.acquired
            ]
            if unread:
                await share_records(gateway, round_.group_id, round_.member_id, unread)
                gateway.share_turns.wake(round_.group_id)
    except Unavailable as error:  # the locks end by themselves
        log.warning("share_fetch_not_given_back", error=str(error))


def _unread(acquired: AcquiredRange) -> JudgedRange:
    return JudgedRange(acquired.first, acquired.last, bytes([Verdict.UNREAD]))


def _data(key: PartitionKey, records: list[Buffer], acquired: list[AcquiredRecords]) -> PartitionData:
    return PartitionData(
        partition_index=key[1], current_leader=UNKNOWN_LEADER, records=records, acquired_records=acquired
    )


def _response(round_: _Round) -> ShareFetchResponse:
    """An answer for each partition that has records, was acknowledged, or has an error."""
    told = dict.fromkeys(
        (*round_.fetched, *round_.acknowledged, *(key for key, error in round_.errors.items() if error))
    )
    by_topic: dict[bytes, list[PartitionData]] = {}
    for key in told:
        by_topic.setdefault(key[0], []).append(_answer(round_, key))
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=round_.lock_ms,
        responses=[ShareFetchableTopicResponse(*each) for each in by_topic.items()],
    )


def _answer(round_: _Round, key: PartitionKey) -> PartitionData:
    data = round_.fetched.get(key) or _data(key, [], [])
    acknowledged = round_.acknowledged.get(key)
    return msgspec.structs.replace(
        data,
        error_code=ErrorCode.NONE if data.acquired_records else round_.errors.get(key, ErrorCode.NONE),
        acknowledge_error_code=ErrorCode.NONE if acknowledged is None else acknowledged.error,
        acknowledge_error_message=None if acknowledged is None else acknowledged.message,
    )
