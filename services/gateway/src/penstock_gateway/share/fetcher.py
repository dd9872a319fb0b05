"""ShareFetch: a member of a share group acknowledges records, and acquires others (KIP-932).

The gateway reads records first, and then acquires them in one journal entry with the member's acknowledgements. So a
record is locked only if it can be sent, and its delivery count is exact. Several gateways may read the same records:
the state machine gives each record to one member, and the other members look again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
    AcquiredRange,
    Outcome,
    RecordsShared,
    Rejected,
    SharePartition,
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
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Entropy
from penstock.runtime.concurrency.ending import to_the_end
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metadata.partition_lookup import NO_EPOCH, READ_UNAVAILABLE, Located, locate
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.share.ack_validation import FIRST_VERSION_RENEW
from penstock_gateway.share.acknowledge import Acknowledged, acknowledged_of, frees_records, topic_ids
from penstock_gateway.share.batch_scan import Wanted, choose, with_acquired
from penstock_gateway.share.commands import ShareCommands
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.partition_queue import PartitionQueues, QueueSlot
from penstock_gateway.share.reader import Offer, ShareReader
from penstock_gateway.share.sessions import CLOSING_EPOCH, ShareSession, ShareSessions, has_acknowledgements
from penstock_gateway.tail.tail_index import PartitionKey
from penstock_gateway.tail.tail_subscriber import TailSubscriber, TailWatch

log = structlog.get_logger()

EXACT_LIMIT = 1  # the acquire mode in which the record limit is strict (KIP-1206)
UNKNOWN_LEADER = LeaderIdAndEpoch(-1, -1)  # a client that needs the leader sends a Metadata request
RENEWS_ONLY = "maxWaitMs, minBytes, maxBytes and maxRecords must be 0 if isRenewAck is true."
ROTATION_BYTES = 4


@dataclass(slots=True)
class _Progress:
    """One request, and its results so far."""

    request: ShareFetchRequest
    group_id: str
    member_id: str
    session: ShareSession | None  # None: only to take acknowledgements
    keys: list[PartitionKey]  # of the session; empty if the request closes it
    acknowledged: dict[PartitionKey, Acknowledged]
    is_exact: bool
    records_max: int
    unsent: list[Acknowledged] = field(default_factory=list)  # not yet sent to the state machine
    errors: dict[PartitionKey, ErrorCode] = field(default_factory=dict)
    fetched: dict[PartitionKey, PartitionData] = field(default_factory=dict)
    lock_ms: int = 0
    has_progressed: bool = False  # if so, look again at once

    @property
    def is_closing(self) -> bool:
        return self.request.share_session_epoch == CLOSING_EPOCH

    @property
    def is_over(self) -> bool:
        return bool(self.fetched or any(self.errors.values()))


class ShareFetcher:
    """Answers ShareFetch requests."""

    def __init__(
        self,
        *,
        reader: ShareReader,
        commands: ShareCommands,
        sessions: ShareSessions,
        queues: PartitionQueues,
        log_reader: LogReader,
        tail: TailSubscriber,
        topics: TopicCache,
        sequencer: SequencerClient,
        response_memory: ResponseMemory,
        metrics: GatewayMetrics,
        entropy: Entropy,
        limits: ShareLimits,
    ) -> None:
        self._reader = reader
        self._commands = commands
        self._sessions = sessions
        self.queues = queues
        self._log_reader = log_reader
        self._tail = tail
        self._topics = topics
        self._sequencer = sequencer
        self._response_memory = response_memory
        self._metrics = metrics
        self._entropy = entropy
        self._limits = limits

    async def fetch(self, client: Client, version: int, request: ShareFetchRequest) -> ShareFetchResponse:
        """The answer to one request; the caller has checked that share groups are enabled."""
        if not request.group_id or not request.member_id:
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        renews = version >= FIRST_VERSION_RENEW and request.is_renew_ack
        if renews and _asks_for_records(request):
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=RENEWS_ONLY)
        found = self._sessions.fetching(client, request)
        is_elsewhere = found is ErrorCode.SHARE_SESSION_NOT_FOUND and has_acknowledgements(request)
        if isinstance(found, ErrorCode) and not is_elsewhere:
            return ShareFetchResponse(error_code=found)
        session = None if isinstance(found, ErrorCode) else found
        answer = self._answer(client, version, request, session, renews=renews)
        # The session is closed already, and only this request releases its records.
        return await (to_the_end(answer) if request.share_session_epoch == CLOSING_EPOCH else answer)

    async def _answer(
        self, client: Client, version: int, request: ShareFetchRequest, session: ShareSession | None, *, renews: bool
    ) -> ShareFetchResponse:
        assert request.group_id and request.member_id, "checked before"
        located = await locate(self._topics, topic_ids(request.topics))
        acknowledged = await acknowledged_of(request.topics, located, Slices(), renews=renews)
        progress = _Progress(
            request,
            request.group_id,
            request.member_id,
            session,
            [] if session is None or request.share_session_epoch == CLOSING_EPOCH else list(session.partitions),
            acknowledged,
            is_exact=version >= FIRST_VERSION_RENEW and request.share_acquire_mode == EXACT_LIMIT,
            records_max=min(request.max_records, self._limits.records_max),
            unsent=[each for each in acknowledged.values() if not each.error],
        )
        if session is None or not progress.keys or progress.records_max <= 0 or request.max_bytes <= 0:
            await self._send_acknowledgements(progress)
        else:
            await self._fetch(client, progress, session)
        return _response(progress)

    async def _send_acknowledgements(self, progress: _Progress) -> None:
        """Send the member's acknowledgements without acquiring more."""
        unsent, progress.unsent = progress.unsent, []
        ended = progress.session if progress.is_closing else None
        lock_ms = await self._commands.acknowledge(progress.group_id, progress.member_id, unsent, ended=ended)
        progress.lock_ms = lock_ms or progress.lock_ms

    async def _fetch(self, client: Client, progress: _Progress, session: ShareSession) -> None:
        """Return when there are records, an error must be reported, or max_wait_ms ends."""
        loop = asyncio.get_running_loop()
        wait_ms_max = self._limits.large_wait_ms_max if client.has_large_request else self._limits.wait_ms_max
        wait_ms = max(min(progress.request.max_wait_ms, wait_ms_max), 0)
        deadline_s = loop.time() + wait_ms / 1000
        rounds = 0
        while True:
            located = await self._locate(progress)
            waiting = self.queues.waiting
            with self._tail.watch(progress.keys) as watch, waiting(progress.group_id, progress.keys, watch):
                progress.has_progressed = False
                await self._try(progress, located, watch)
                if progress.unsent:
                    await self._send_acknowledgements(progress)
                now_s = loop.time()
                if progress.is_over or client.is_leaving or session.is_closed or now_s >= deadline_s:
                    return
                rounds = rounds + 1 if progress.has_progressed else 0
                if 0 < rounds < self._limits.rounds_max:
                    continue
                if await watch.until(min(deadline_s, now_s + self._limits.look_again_s)):
                    self._log_reader.throttle.record_tailing_read()

    async def _locate(self, progress: _Progress) -> Located:
        located = await locate(self._topics, (topic_id for topic_id, _ in progress.keys))
        for key in progress.keys:
            topic = located.partition(*key, NO_EPOCH)
            progress.errors[key] = topic if isinstance(topic, ErrorCode) else ErrorCode.NONE
        return located

    async def _try(self, progress: _Progress, located: Located, watch: TailWatch) -> None:
        """Acquire the records available now, in the partitions that no other member fetches."""
        if not await self._response_memory.wait(self._log_reader.limits.memory_wait_s):
            return
        good = [key for key in progress.keys if not progress.errors[key]]
        # Start at a random partition, so that no partition is served last every time.
        first = int.from_bytes(self._entropy.take(ROTATION_BYTES)) % max(len(good), 1)
        with self.queues.take(progress.group_id, good[first:] + good[:first], watch) as slot:
            if not slot.keys:
                return
            try:
                await self._acquire(progress, located, slot)
            except Unavailable as error:
                log.warning("share_fetch_failed", partitions=len(slot.keys), error=str(error))
                progress.errors |= dict.fromkeys(slot.keys, READ_UNAVAILABLE)

    async def _acquire(self, progress: _Progress, located: Located, slot: QueueSlot) -> None:
        view = await self._ask(progress, slot.keys)
        if view.rejection is Rejection.NONE:
            slot.empty.update(key for key, each in zip(slot.keys, view.partitions, strict=True) if not each.windows)
        offers = _offers(view, progress, located, slot.keys)
        if not offers:
            return
        await self._reader.read(
            offers,
            bytes_max=progress.request.max_bytes,
            records_max=progress.records_max,
            read_committed=view.read_committed,
        )
        wanted: list[tuple[Offer, Wanted]] = []
        left = progress.records_max
        for each in offers:
            if each.error:
                progress.errors[each.key] = each.error
            elif left > 0 and (chosen := choose(each.batches, each.windows, left)) is not None:
                wanted.append((each, chosen))
                left -= chosen.records_max
        if wanted:
            await self._command(progress, wanted)

    async def _ask(self, progress: _Progress, keys: Sequence[PartitionKey]) -> SharePartitionsView:
        refs = [SharePartitionRef(*key) for key in keys]
        query = SharePartitionsQuery(0, progress.group_id, progress.member_id, refs)
        return await self._sequencer.query("share_partitions", query, SharePartitionsView)

    async def _command(self, progress: _Progress, wanted: Sequence[tuple[Offer, Wanted]]) -> None:
        """Acquire the records that were read, in one entry with the member's acknowledgements."""
        sent, progress.unsent = progress.unsent, []
        limit = progress.records_max if progress.is_exact else sum(chosen.records_max for _, chosen in wanted)
        partitions = _share_partitions(sent, wanted, limit)
        try:
            outcome = await self._outcome(progress, partitions, limit)
        except Unavailable as error:
            for each in sent:
                each.error, each.message = READ_UNAVAILABLE, str(error)
            raise
        assert isinstance(outcome, RecordsShared | Rejected), f"unexpected outcome of an acquisition: {outcome}"
        if isinstance(outcome, Rejected):  # the client is no longer a member: send its acknowledgements alone
            progress.unsent = sent
            return
        places = {(each.topic_id, each.partition): place for place, each in enumerate(partitions)}
        for acknowledged in sent:
            self._commands.record_result(acknowledged, outcome, places[acknowledged.key])
        if frees_records(sent):
            self.queues.wake(progress.group_id)
        progress.lock_ms = outcome.lock_duration_ms
        progress.has_progressed = True
        assert progress.session is not None, "without a session there are no partitions to fetch"
        if progress.session.is_closed:  # meanwhile; its end did not release these records
            await to_the_end(self._release(progress, partitions, outcome))
            return
        for (offer, _), shared in zip(wanted, outcome.partitions, strict=False):
            if shared.acquired:
                progress.session.record_acquired(outcome.acquisition)
                acquired = [AcquiredRecords(each.first, each.last, each.delivery_count) for each in shared.acquired]
                self._count(shared.acquired)
                records = with_acquired(offer.records, offer.batches, shared.acquired)
                self._metrics.topic_bytes.add_read(offer.topic, sum(map(len, records)))
                progress.fetched[offer.key] = _data(offer.key, records, acquired)
            elif shared.rejection is Rejection.UNKNOWN_TOPIC:
                progress.errors[offer.key] = error_of(shared.rejection)

    def _count(self, acquired: Sequence[AcquiredRange]) -> None:
        for each in acquired:
            self._metrics.share_acquired[each.delivery_count > 1].inc(each.last - each.first + 1)

    async def _outcome(self, progress: _Progress, partitions: Sequence[SharePartition], limit: int) -> Outcome:
        """The outcome of the command; if the connection ends first, release the acquired records."""
        command = self._commands.share_records(progress.group_id, progress.member_id, partitions, records_max=limit)
        sent = asyncio.ensure_future(command)
        try:
            return await asyncio.shield(sent)
        except asyncio.CancelledError:
            try:
                await self._release(progress, partitions, await sent)
            except Unavailable as error:  # the locks expire by themselves
                log.warning("share_records_not_released", error=str(error))
            raise

    async def _release(self, progress: _Progress, partitions: Sequence[SharePartition], outcome: Outcome) -> None:
        """Release the records acquired for a closed session or connection: else they stay locked for half a minute."""
        try:
            if isinstance(outcome, RecordsShared):
                unread = [
                    SharePartition(wanted.topic_id, wanted.partition, [_unread(each) for each in shared.acquired])
                    for wanted, shared in zip(partitions, outcome.partitions, strict=True)
                    if shared.acquired
                ]
                if unread:
                    await self._commands.share_records(progress.group_id, progress.member_id, unread)
                    self.queues.wake(progress.group_id)
        except Unavailable as error:  # the locks expire by themselves
            log.warning("share_records_not_released", error=str(error))


class HasShareFetcher(Protocol):
    @property
    def share_fetcher(self) -> ShareFetcher: ...


def _asks_for_records(request: ShareFetchRequest) -> bool:
    return any((request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records))


def _offers(
    view: SharePartitionsView, progress: _Progress, located: Located, keys: Sequence[PartitionKey]
) -> list[Offer]:
    """The partitions with records to acquire, as many as are likely to be enough.

    A client that is no member gets no records and no error: only the heartbeat API has an error for that.
    """
    if view.rejection is not Rejection.NONE:
        return []
    offers = []
    left = progress.records_max
    for key, partition in zip(keys, view.partitions, strict=True):
        if left <= 0:
            break
        if partition.rejection is Rejection.NONE and partition.windows:
            topic = located.partition(*key, NO_EPOCH)
            assert not isinstance(topic, ErrorCode), "only partitions without an error are queried"
            offers.append(Offer(key, topic.name, topic.leader_epoch, partition.windows))
            left -= sum(window.last - window.first + 1 for window in partition.windows)
    return offers


def _share_partitions(
    unsent: Sequence[Acknowledged], wanted: Sequence[tuple[Offer, Wanted]], limit: int
) -> list[SharePartition]:
    """The partitions of one command: first those to acquire, then those that are only acknowledged."""
    acknowledged = {each.key: each for each in unsent}
    partitions = [
        SharePartition(
            *each.key,
            acknowledged=acknowledged.pop(each.key).ranges if each.key in acknowledged else [],
            first=each.offset,
            last=chosen.last,
            records_max=min(chosen.records_max, limit),
            gaps=chosen.gaps,
        )
        for each, chosen in wanted
    ]
    return partitions + [SharePartition(*each.key, each.ranges) for each in acknowledged.values()]


def _unread(acquired: AcquiredRange) -> AcknowledgedRange:
    return AcknowledgedRange(acquired.first, acquired.last, bytes([AcknowledgeType.UNREAD]))


def _data(key: PartitionKey, records: list[Buffer], acquired: list[AcquiredRecords]) -> PartitionData:
    return PartitionData(
        partition_index=key[1], current_leader=UNKNOWN_LEADER, records=records, acquired_records=acquired
    )


def _response(progress: _Progress) -> ShareFetchResponse:
    """An answer for each partition that has records, was acknowledged, or has an error."""
    with_errors = (key for key, error in progress.errors.items() if error)
    by_topic: dict[bytes, list[PartitionData]] = {}
    for key in dict.fromkeys((*progress.fetched, *progress.acknowledged, *with_errors)):
        by_topic.setdefault(key[0], []).append(_partition_answer(progress, key))
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=progress.lock_ms,
        responses=[ShareFetchableTopicResponse(*each) for each in by_topic.items()],
    )


def _partition_answer(progress: _Progress, key: PartitionKey) -> PartitionData:
    data = progress.fetched.get(key) or _data(key, [], [])
    acknowledged = progress.acknowledged.get(key)
    return msgspec.structs.replace(
        data,
        error_code=ErrorCode.NONE if data.acquired_records else progress.errors.get(key, ErrorCode.NONE),
        acknowledge_error_code=ErrorCode.NONE if acknowledged is None else acknowledged.error,
        acknowledge_error_message=None if acknowledged is None else acknowledged.message,
    )
