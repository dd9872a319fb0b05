"""Produce: checks batches and their records, hands accepted ones to a flusher, and answers after the commit."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from penstock.contracts.acls import AclOperation, ResourceType
from penstock.contracts.batches import NO_PRODUCER, TRANSACTIONAL, BatchMeta
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_internal_topic
from penstock.contracts.messages import FlushBatch, ListenerAddress
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.produce import API as PRODUCE, PartitionProduceData, ProduceRequest, ProduceResponse
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.records import BatchHeader, check_batch, is_transactional, stamp_batch
from penstock.kafkawire.schema import Records
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.slices import Slices
from penstock.runtime.traces.traces import NO_TRACES, Traces, current_trace
from penstock_gateway.coordination.transaction_commands import TRANSACTIONS_UNAVAILABLE, transactions_error
from penstock_gateway.kafka.broker_view import Node
from penstock_gateway.kafka.client import Client
from penstock_gateway.kafka.error_mapping import CloseConnection, error_of
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metadata.partition_lookup import TopicRef, absence, cached_topic, find_topics
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.produce.flush_router import FlushRouter
from penstock_gateway.produce.limits import ProduceLimits
from penstock_gateway.produce.produce_response import (
    BatchCheck,
    BatchError,
    Checked,
    close_on_error,
    produce_response,
    topic_ref,
)
from penstock_gateway.produce.producer_route import Flushed, ProducerRoute, is_undecided
from penstock_gateway.produce.record_validation import RecordRules, RecordValidationError, RecordValidator
from penstock_gateway.produce.repeated_partitions import last_batches
from penstock_gateway.produce.topic_rules import TopicRules, record_rules, rules_of
from penstock_gateway.security.authorizer import Access, Authorizer

FIRST_VERSION_MAGIC_2 = 3  # before it clients send formats that Kafka 4 rejects, too
FIRST_VERSION_ZSTD = 7  # KIP-110
FIRST_VERSION_ADDS = 12  # from here on a partition joins the transaction with its first batch (KIP-890)
# The error while a new gateway does not know yet whether the cluster has transactions: clients send again.
_UNKNOWN_LEVEL = ErrorCode.NOT_ENOUGH_REPLICAS
ACKS_NONE = 0
ACKS = frozenset((-1, 0, 1))


class _RequestRules(msgspec.Struct, frozen=True):
    """The rules for all batches of a request: its version, and whether they may be transactional."""

    version: int
    transactional: bool


class _OpenRoute:
    """A connection's route to its flusher, from its first produce on."""

    def __init__(self) -> None:
        self.route: ProducerRoute | None = None


class ProduceService:
    """Answers Produce requests."""

    def __init__(
        self,
        *,
        flush_router: FlushRouter,
        topics: TopicCache,
        sequencer: SequencerClient,
        clock: Clock,
        metrics: GatewayMetrics,
        authorizer: Authorizer,
        nodes: Mapping[str, Node],
        storage_error: Callable[[], str],
        validator: RecordValidator | None = None,
        limits: ProduceLimits | None = None,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._traces = traces
        self._flush_router = flush_router
        self._topics = topics
        self.sequencer = sequencer  # this and the clock: for the cluster's level
        self.clock = clock
        self._metrics = metrics
        self._authorizer = authorizer
        self._storage_error = storage_error  # why the cluster stores no more records, or ""
        self._nodes = nodes  # by listener: this gateway's own place among the brokers
        self._limits = limits or ProduceLimits()
        self._validator = validator or RecordValidator(self._limits.records)

    async def produce(self, client: Client, version: int, request: ProduceRequest) -> ProduceResponse | None:
        """The answer to one request, None for acks=0; raises `CloseConnection` if the request was not decided."""
        is_unanswered = request.acks == ACKS_NONE
        client.unanswered_produces += is_unanswered
        try:
            return await self._produce(client, version, request)
        finally:
            client.unanswered_produces -= is_unanswered

    async def _produce(self, client: Client, version: int, request: ProduceRequest) -> ProduceResponse | None:
        slices = Slices()
        arrived_s = min(client.produce_arrived_s, self.clock.monotonic_s())
        access = self._authorizer.access(client, PRODUCE.key)
        error = self._request_error(request, access)
        if error:
            rejected: list[BatchCheck] = [error] * _partition_count(request)
            checked = Checked({}, [], [], rejected)
            return _if_wanted(request, await produce_response(version, request, checked, None, slices))
        async with client.produce_order:  # released before the answer: the connection's next request follows
            request = await last_batches(version, request, slices)
            topics = await self._topics_of(client, version, request, slices)
            checked = await self._check(version, request, topics, access, slices)
            flushed_later = self._hand_over(client, request, checked, arrived_s)
        flushed = await flushed_later if flushed_later else None
        response = await produce_response(version, request, checked, flushed, slices)
        self._record_failures(checked, flushed)
        if flushed is not None and is_undecided(flushed.results):
            raise CloseConnection("a produce request was not decided; the client has to send it again")
        return _if_wanted(request, response)

    def _request_error(self, request: ProduceRequest, access: Access | None) -> ErrorCode:
        """The error of the request itself, before its batches are checked; `NONE` if there is none."""
        name = request.transactional_id
        if access and name is not None and not access.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.acks not in ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        error = transactions_error(self) if request.transactional_id is not None else ErrorCode.NONE
        return _UNKNOWN_LEVEL if error is TRANSACTIONS_UNAVAILABLE else error

    async def _topics_of(
        self, client: Client, version: int, request: ProduceRequest, slices: Slices
    ) -> dict[TopicRef, TopicView]:
        """The topics that exist; asks for topics that are not cached, or that may have more partitions now."""
        found: dict[TopicRef, TopicView] = {}
        missing = []
        async for topic in slices.of(request.topic_data):
            ref = topic_ref(version, topic)
            view = cached_topic(self._topics, ref)
            if view is not None and any(data.index >= view.partitions for data in topic.partition_data):
                self._topics.remove([view.name])
                view = None
            if view is None:
                missing.append(ref)
            else:
                found[ref] = view
        if missing:
            try:
                found |= await find_topics(self._topics, missing)
            except Unavailable:
                self._route(client).end()  # later requests must not overtake this one
                raise
        return found

    async def _check(
        self,
        version: int,
        request: ProduceRequest,
        topics: dict[TopicRef, TopicView],
        access: Access | None,
        slices: Slices,
    ) -> Checked:
        checked = Checked(topics, [], [], [])
        request_rules = _RequestRules(version, request.transactional_id is not None)
        full = self._full()
        async for topic in slices.of(request.topic_data):
            ref = topic_ref(version, topic)
            view = topics.get(ref)
            error = _topic_error(ref, view, access) or full
            if view is None or error:
                async for _ in slices.of(topic.partition_data):
                    self._reject(checked, error)
                continue
            rules = rules_of(view.configs)
            inside = record_rules(rules, self.clock.now_ms())
            bytes_max = min(self._flush_router.batch_bytes_max, rules.batch_bytes_max)
            async for data in slices.of(topic.partition_data):
                check = _check_header(request_rules, data, view, bytes_max)
                if inside is not None and isinstance(check, BatchHeader):
                    check = await self._check_records(f"{view.name}-{data.index}", data.records, check, inside)
                if isinstance(check, BatchHeader):
                    adds = version >= FIRST_VERSION_ADDS and is_transactional(check)
                    self._accept(checked, view, rules, data, check, adds_partition=adds)
                else:
                    self._reject(checked, check)
        return checked

    def _full(self) -> BatchError:
        """The error of a cluster that has reached its quota of stored bytes; else `NONE`.

        Clients do not send again after this error: that helps only after records are deleted.
        """
        message = self._storage_error()
        return RecordValidationError(ErrorCode.POLICY_VIOLATION, message, []) if message else ErrorCode.NONE

    def _reject(self, checked: Checked, check: BatchError) -> None:
        checked.checks.append(check)
        error = check.error if isinstance(check, RecordValidationError) else check
        self._metrics.batches_rejected.labels(error.name).inc()

    async def _check_records(
        self, place: str, records: Records, header: BatchHeader, rules: RecordRules
    ) -> BatchHeader | BatchError:
        """The header of a batch whose records follow the topic's rules, or the error."""
        assert records is not None and not isinstance(records, list), "a valid batch has its bytes"
        return await self._validator.validation_error(place, records, header, rules) or header

    def _accept(
        self,
        checked: Checked,
        view: TopicView,
        rules: TopicRules,
        data: PartitionProduceData,
        header: BatchHeader,
        *,
        adds_partition: bool,
    ) -> None:
        records = data.records
        assert records is not None and not isinstance(records, list), "an accepted batch has its bytes"
        checked.is_express &= rules.is_express
        if rules.append_time:
            records, header = stamp_batch(records, header, self.clock.now_ms())
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
        checked.checks.append(len(checked.batches))
        checked.batches.append(FlushBatch(view.topic_id, data.index, meta))
        checked.payload.append(records)
        checked.topic_bytes[view.name] = checked.topic_bytes.get(view.name, 0) + len(records)

    def _hand_over(
        self, client: Client, request: ProduceRequest, checked: Checked, arrived_s: float
    ) -> "asyncio.Future[Flushed] | None":
        if not checked.batches:
            return None
        self._metrics.produced_bytes.inc(sum(checked.topic_bytes.values()))
        for topic, size_bytes in checked.topic_bytes.items():
            self._metrics.topic_bytes.add_produced(topic, size_bytes)
        limits = self._limits
        timeout_s = min(max(request.timeout_ms / 1000, limits.request_timeout_s_min), limits.request_timeout_s_max)
        # A client that wants no answer never sends again.
        may_come_late = any(_is_unrecognised_late(batch.meta) for batch in checked.batches)
        needs_confirmation = may_come_late and request.acks != ACKS_NONE
        if needs_confirmation:  # the client waits since it sent the request, and may give up while it waits here
            timeout_s -= self.clock.monotonic_s() - arrived_s
        route = self._route(client)
        return route.submit(
            checked.batches,
            checked.payload,
            timeout_s,
            needs_confirmation=needs_confirmation,
            principal=client.principal,
            is_express=checked.is_express,
            trace=current_trace() if self._traces.is_on else "",
        )

    def _route(self, client: Client) -> ProducerRoute:
        opened = client.part(_OpenRoute)
        if opened.route is None:
            key = self._route_key(client)
            route = opened.route = self._flush_router.open_route(client.on_flusher_change, key, client.listener)
            client.is_flusher_full = lambda: route.is_full
            client.on_close.append(route.close)
        return opened.route

    def _route_key(self, client: Client) -> str:
        """The key that chooses the connection's flusher; "" for any.

        A client's leader may move to another gateway. Then a producer without idempotence may send there while the old
        gateway still works on its requests. If both gateways use one flusher, the requests stay in the order of
        sending. Behind a proxy all gateways have one address, and also if they listen on one port of one machine. Then
        there is no such move. Behind a proxy all clients have the same host.
        """
        node = self._nodes[client.listener]
        address = ListenerAddress(client.listener, node.host, node.port)
        return "" if self._flush_router.is_address_shared(address) else f"{client.client_id}\0{client.host}"

    def _record_failures(self, checked: Checked, flushed: Flushed | None) -> None:
        """Count batches rejected after the flush, and remove deleted topics from the cache."""
        if flushed is None or not any(result.rejection for result in flushed.results):
            return
        for result in flushed.results:
            if result.rejection:
                self._metrics.batches_rejected.labels(error_of(result.rejection).name).inc()
        if any(result.rejection == Rejection.UNKNOWN_TOPIC for result in flushed.results):
            self._topics.remove(view.name for view in checked.topics.values())


class HasProduceService(Protocol):
    @property
    def produce_service(self) -> ProduceService: ...


def _topic_error(ref: TopicRef, view: TopicView | None, access: Access | None) -> ErrorCode:
    """The error of a topic that is missing, or that the client may not write to; else `NONE`.

    A topic's name is checked before its existence: clients must not learn which names exist.
    """
    name = view.name if view is not None else ref
    if not isinstance(name, str):
        return absence(ref)
    if access is not None and not access.allows(AclOperation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if is_internal_topic(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return absence(ref) if view is None else ErrorCode.NONE


def _is_unrecognised_late(meta: BatchMeta) -> bool:
    """Whether the sequencers cannot recognise a late copy of the batch (ADR 0024, ADR 0029).

    They recognise idempotent batches. But in the old protocol two transactions may use the same sequence numbers.
    """
    is_transactional = meta.attributes & TRANSACTIONAL and not meta.adds_partition
    return meta.producer_id == NO_PRODUCER or bool(is_transactional)


def _check_header(
    rules: _RequestRules, data: PartitionProduceData, view: TopicView, bytes_max: int
) -> BatchHeader | BatchError:
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


def _if_wanted(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    """The response if the client wants one; with acks=0 an error ends the connection."""
    if request.acks != ACKS_NONE:
        return response
    close_on_error(response)
    return None


def _partition_count(request: ProduceRequest) -> int:
    return sum(len(topic.partition_data) for topic in request.topic_data)
