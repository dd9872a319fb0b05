"""Produce: check each batch by its header, hand the good ones to the connection's flusher, answer once committed."""

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchResult
from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import topic_id_text
from penstock.contracts.messages import FlushBatch
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import LOG_APPEND_TIME, BatchHeader, check_batch, is_transactional, stamp_batch
from penstock.kafkawire.schema import Records
from penstock_gateway.context import Client, Gateway
from penstock_gateway.coordination.transaction_commands import TRANSACTIONS_UNAVAILABLE, transactions_error
from penstock_gateway.kafka.error_mapping import CloseConnection, error_of
from penstock_gateway.metadata.partition_lookup import TopicRef, absence, cached_topic, find_topics, rejection_error
from penstock_gateway.produce.producer_route import Flushed, ProducerRoute, is_undecided
from penstock_gateway.produce.record_validation import RecordRules, RecordValidationError
from penstock_gateway.produce.topic_rules import TopicRules, record_rules, rules_of

FIRST_VERSION_MAGIC_2 = 3  # before it clients send formats that Kafka 4 does not take either
FIRST_VERSION_ZSTD = 7  # KIP-110
FIRST_VERSION_ABORTABLE = 11  # from here on clients know TRANSACTION_ABORTABLE (KIP-890)
FIRST_VERSION_ADDS = 12  # from here on a partition joins the transaction with its first batch (KIP-890)
FIRST_VERSION_IDS = 13  # from here on topics have ids in place of names (KIP-516)
NO_TIMESTAMP = -1
# For the moment in which a new gateway does not know yet whether there are transactions: clients send once more.
_UNKNOWN_LEVEL = ErrorCode.NOT_ENOUGH_REPLICAS
ACKS_NONE = 0
ACKS = frozenset((-1, 0, 1))
# The client's own time-out, within what makes sense here: below a flush interval nothing could ever succeed, and
# beyond a minute the client has given up.
TIMEOUT_S_MIN = 1.0
TIMEOUT_S_MAX = 60.0


Rejected = ErrorCode | RecordValidationError
Verdict = int | Rejected  # of one partition: its place among the accepted batches, or why not


class _Rules(msgspec.Struct, frozen=True):
    """What holds for all batches of a request: its version, and whether there may be transactional ones."""

    version: int
    transactional: bool


class _Checked(msgspec.Struct):
    """A request gone through: what goes to the flusher, and per partition its place there or why not."""

    topics: dict[TopicRef, TopicView]  # that exist
    batches: list[FlushBatch]
    payload: list[Buffer]
    verdicts: list[Verdict]  # in the request's order


async def handle(gateway: Gateway, client: Client, version: int, request: ProduceRequest) -> ProduceResponse | None:
    is_unanswered = request.acks == ACKS_NONE
    client.unanswered_produces += is_unanswered
    try:
        return await _produce(gateway, client, version, request)
    finally:
        client.unanswered_produces -= is_unanswered


async def _produce(gateway: Gateway, client: Client, version: int, request: ProduceRequest) -> ProduceResponse | None:
    error = _request_error(gateway, request)
    if error:
        rejected: list[Verdict] = [error] * _partition_count(request)
        return _if_wanted(request, _answer(version, request, _Checked({}, [], [], rejected), None))
    async with client.produce_order:  # left before the answer comes: the next request of the connection follows
        checked = await _check(gateway, version, request, await _topics_of(gateway, client, version, request))
        flushed_later = _hand_over(gateway, client, request, checked)
    flushed = await flushed_later if flushed_later else None
    response = _answer(version, request, checked, flushed)
    _record_failures(gateway, checked, flushed)
    if flushed is not None and is_undecided(flushed.results):
        raise CloseConnection("a produce request was not decided; the client has to send it again")
    return _if_wanted(request, response)


def _request_error(gateway: Gateway, request: ProduceRequest) -> ErrorCode:
    """What is wrong with the request, whatever its batches are; `NONE` if nothing."""
    if request.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    error = transactions_error(gateway) if request.transactional_id is not None else ErrorCode.NONE
    return _UNKNOWN_LEVEL if error is TRANSACTIONS_UNAVAILABLE else error


def _if_wanted(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    """The response to those who want one; the others' connection ends if something went wrong."""
    if request.acks != ACKS_NONE:
        return response
    _close_on_error(response)
    return None


def _ref(version: int, topic: TopicProduceData) -> TopicRef:
    return topic.topic_id if version >= FIRST_VERSION_IDS else topic.name


async def _topics_of(
    gateway: Gateway, client: Client, version: int, request: ProduceRequest
) -> dict[TopicRef, TopicView]:
    """The topics that exist; asks for those that are unknown here, or were before they grew."""
    found: dict[TopicRef, TopicView] = {}
    missing = []
    for topic in request.topic_data:
        ref = _ref(version, topic)
        view = cached_topic(gateway, ref)
        if view is not None and any(data.index >= view.partitions for data in topic.partition_data):
            gateway.topics.remove([view.name])
            view = None
        if view is None:
            missing.append(ref)
        else:
            found[ref] = view
    if missing:
        try:
            found |= await find_topics(gateway, missing)
        except Unavailable:
            _route(gateway, client).end()  # the requests behind this one must not overtake it
            raise
    return found


async def _check(
    gateway: Gateway, version: int, request: ProduceRequest, topics: dict[TopicRef, TopicView]
) -> _Checked:
    checked = _Checked(topics, [], [], [])
    for topic in request.topic_data:
        ref = _ref(version, topic)
        view = topics.get(ref)
        if view is None:
            for _ in topic.partition_data:
                _reject(gateway, checked, absence(ref))
            continue
        rules = rules_of(view.configs)
        inside = record_rules(rules, gateway.clock.now_ms())
        bytes_max = min(gateway.flushes.batch_bytes_max, rules.batch_bytes_max)
        for data in topic.partition_data:
            verdict = _verdict(_Rules(version, request.transactional_id is not None), data, view, bytes_max)
            if inside is not None and isinstance(verdict, BatchHeader):
                verdict = await _look_inside(gateway, f"{view.name}-{data.index}", data.records, verdict, inside)
            if isinstance(verdict, BatchHeader):
                adds = version >= FIRST_VERSION_ADDS and is_transactional(verdict)
                _accept(gateway, checked, view, rules, data, verdict, adds_partition=adds)
            else:
                _reject(gateway, checked, verdict)
    return checked


def _reject(gateway: Gateway, checked: _Checked, verdict: Rejected) -> None:
    checked.verdicts.append(verdict)
    error = verdict.error if isinstance(verdict, RecordValidationError) else verdict
    gateway.metrics.batches_rejected.labels(error.name).inc()


def _verdict(rules: _Rules, data: PartitionProduceData, view: TopicView, bytes_max: int) -> BatchHeader | Rejected:
    if not 0 <= data.index < view.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if rules.version < FIRST_VERSION_MAGIC_2:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    if data.records is None:
        return ErrorCode.INVALID_RECORD
    assert not isinstance(data.records, list), "decoded records are one buffer"
    return check_batch(
        data.records,
        batch_bytes_max=bytes_max,
        zstd_allowed=rules.version >= FIRST_VERSION_ZSTD,
        transactional_allowed=rules.transactional,
    )


async def _look_inside(
    gateway: Gateway, place: str, records: Records, header: BatchHeader, rules: RecordRules
) -> BatchHeader | Rejected:
    """The header of a batch whose records are such as the topic wants them."""
    assert records is not None and not isinstance(records, list), "a good batch has its bytes"
    return await gateway.record_check.validation_error(place, records, header, rules) or header


def _accept(
    gateway: Gateway,
    checked: _Checked,
    view: TopicView,
    rules: TopicRules,
    data: PartitionProduceData,
    header: BatchHeader,
    *,
    adds_partition: bool,
) -> None:
    records = data.records
    assert records is not None and not isinstance(records, list), "an accepted batch has its bytes"
    if rules.append_time:
        records, header = stamp_batch(records, header, gateway.clock.now_ms())
    meta = BatchMeta(
        len(records),
        header.record_count,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.attributes,
        adds_partition,
    )
    checked.verdicts.append(len(checked.batches))
    checked.batches.append(FlushBatch(view.topic_id, data.index, meta))
    checked.payload.append(records)


def _hand_over(
    gateway: Gateway, client: Client, request: ProduceRequest, checked: _Checked
) -> "asyncio.Future[Flushed] | None":
    if not checked.batches:
        return None
    gateway.metrics.produced_bytes.inc(sum(map(len, checked.payload)))
    timeout_s = min(max(request.timeout_ms / 1000, TIMEOUT_S_MIN), TIMEOUT_S_MAX)
    return _route(gateway, client).submit(checked.batches, checked.payload, timeout_s)


def _route(gateway: Gateway, client: Client) -> ProducerRoute:
    if client.route is None:
        client.route = gateway.flushes.open_route(client.on_route_change, _route_key(gateway, client))
    return client.route


def _route_key(gateway: Gateway, client: Client) -> str:
    """What chooses the connection's flusher; "" for any.

    When the leader that a client is told moves to another gateway, a producer without idempotence may send there while
    the old one still works on its requests. With one flusher behind both, the order is the order of sending. Behind a
    proxy there is one address and no such move, and all clients look the same.
    """
    return "" if client.listener in gateway.proxied else f"{client.client_id}\0{client.host}"


def _answer(version: int, request: ProduceRequest, checked: _Checked, flushed: Flushed | None) -> ProduceResponse:
    results = flushed.results if flushed else []
    verdicts = iter(checked.verdicts)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [
                    _partition_answer(version, topic, data.index, next(verdicts), checked, results)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ],
        throttle_time_ms=flushed.throttle_ms if flushed else 0,
    )


def _partition_answer(
    version: int,
    topic: TopicProduceData,
    index: int,
    verdict: Verdict,
    checked: _Checked,
    results: Sequence[BatchResult],
) -> PartitionProduceResponse:
    if isinstance(verdict, ErrorCode):
        return PartitionProduceResponse(index, verdict, -1)
    if isinstance(verdict, RecordValidationError):
        return PartitionProduceResponse(
            index=index,
            error_code=verdict.error,
            base_offset=-1,
            record_errors=verdict.record_errors,
            error_message=verdict.message,
        )
    meta, result = checked.batches[verdict].meta, results[verdict]
    is_stamped = meta.attributes & LOG_APPEND_TIME and not result.rejection
    return PartitionProduceResponse(
        index=index,
        error_code=_batch_error(version, _ref(version, topic), meta, result.rejection),
        base_offset=result.base_offset,
        log_append_time_ms=meta.max_timestamp if is_stamped else NO_TIMESTAMP,
        log_start_offset=result.log_start_offset,
    )


def _batch_error(version: int, ref: TopicRef, meta: BatchMeta, rejection: int) -> ErrorCode:
    is_abortable = version >= FIRST_VERSION_ABORTABLE and meta.attributes & TRANSACTIONAL
    if rejection == Rejection.INVALID_TXN_STATE and is_abortable:
        return ErrorCode.TRANSACTION_ABORTABLE
    return rejection_error(ref, rejection)


def _record_failures(gateway: Gateway, checked: _Checked, flushed: Flushed | None) -> None:
    """Count what was refused later; a topic that is gone is not to be remembered."""
    if flushed is None or not any(result.rejection for result in flushed.results):
        return
    for result in flushed.results:
        if result.rejection:
            gateway.metrics.batches_rejected.labels(error_of(result.rejection).name).inc()
    if any(result.rejection == Rejection.UNKNOWN_TOPIC for result in flushed.results):
        gateway.topics.remove(view.name for view in checked.topics.values())


def _close_on_error(response: ProduceResponse) -> None:
    """With acks=0 there is no answer that could say what went wrong."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                error = ErrorCode(partition.error_code).name
                name = topic.name or topic_id_text(topic.topic_id)
                raise CloseConnection(f"{error} for {name}-{partition.index} produced with acks=0")


def _partition_count(request: ProduceRequest) -> int:
    return sum(len(topic.partition_data) for topic in request.topic_data)
