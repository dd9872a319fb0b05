"""Writes the audit trail to its topic through a flusher, in batches; makes the topic if it is missing.

Events are written again until a flusher has committed them. So an event may stand in the topic twice, after an outage,
with the same gateway and number.
"""

import asyncio
import contextlib
import zlib
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.batches import BatchMeta
from penstock.contracts.commands import Command, CreateTopic, Outcome, Rejected
from penstock.contracts.configs.topics import RETENTION_MS
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import AUDIT_TOPIC, ID_BYTES, new_topic_id
from penstock.contracts.messages import FlushBatch
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection, rejection_text
from penstock.kafkawire.records import NO_PRODUCER, Record, build_batch
from penstock.runtime.clock import Clock, Entropy
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.produce.flush_router import FlushRouter
from penstock_gateway.produce.producer_route import ProducerRoute, is_undecided
from penstock_gateway.security.audit_trail import AuditEvent, AuditTrail, NewAuditTopic

log = structlog.get_logger()


class Sequencers(Protocol):
    """The part of the sequencer client that makes the topic."""

    async def command(self, commands: list[Command], *, deadline_s: float) -> list[Outcome]: ...


class AuditWriter:
    """Moves the events of one gateway from its trail to the topic."""

    def __init__(
        self,
        *,
        trail: AuditTrail,
        flush_router: FlushRouter,
        topics: TopicCache,
        sequencer: Sequencers,
        clock: Clock,
        entropy: Entropy,
        new_topic: NewAuditTopic | None = None,
    ) -> None:
        self._trail = trail
        self._flush_router = flush_router
        self._topics = topics
        self._sequencer = sequencer
        self._clock = clock
        self._entropy = entropy
        self._new_topic = new_topic or NewAuditTopic()
        self._route: ProducerRoute | None = None
        self._fails = False

    async def run(self) -> None:
        """Write events until cancelled."""
        limits = self._trail.limits
        left: list[AuditEvent] = []
        while True:
            if not left:
                await self._trail.until_filled()
                await asyncio.sleep(limits.linger_s)
                left = self._trail.take()
            left = await self._unwritten(left)
            if left:
                await asyncio.sleep(limits.retry_s)

    async def drain(self, deadline_s: float) -> None:
        """Wait until all events are written, or the deadline is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._trail.until_written()

    async def _unwritten(self, events: list[AuditEvent]) -> list[AuditEvent]:
        """Write the events; return those that are to be written again."""
        try:
            topic = await self._topic()
        except Unavailable as error:
            self._record_failure(str(error))
            return events
        left = await self._submit(topic, events)
        if not left and self._fails:
            self._fails = False
            log.info("audit_written_again")
        return left

    async def _topic(self) -> TopicView:
        """The topic, which is made if it is missing; `Unavailable` if that is not possible now."""
        found = await self._topics.find([AUDIT_TOPIC])
        if not found:
            await self._create()
            found = await self._topics.find([AUDIT_TOPIC])
        if not found:
            raise Unavailable("the topic is not there yet")
        return found[AUDIT_TOPIC]

    async def _create(self) -> None:
        new = self._new_topic
        command = CreateTopic(
            now_ms=self._clock.now_ms(),
            name=AUDIT_TOPIC,
            topic_id=new_topic_id(self._entropy.take(ID_BYTES)),
            partitions=new.partitions,
            configs={RETENTION_MS: str(new.retention_ms)},
        )
        (outcome,) = await self._sequencer.command([command], deadline_s=self._trail.limits.write_timeout_s)
        self._topics.remove([AUDIT_TOPIC])
        if not isinstance(outcome, Rejected):
            log.info("audit_topic_created", topic=AUDIT_TOPIC, partitions=new.partitions)
        elif outcome.rejection != Rejection.TOPIC_EXISTS:  # another gateway may be faster
            raise Unavailable(f"the topic is rejected: {outcome.message or outcome.rejection}")

    async def _submit(self, topic: TopicView, events: list[AuditEvent]) -> list[AuditEvent]:
        by_partition: dict[int, list[AuditEvent]] = {}
        for event in events:
            by_partition.setdefault(zlib.crc32(event.principal.encode()) % topic.partitions, []).append(event)
        payload = [_batch(some) for some in by_partition.values()]
        batches = [
            FlushBatch(topic.topic_id, partition, _meta(batch, some))
            for (partition, some), batch in zip(by_partition.items(), payload, strict=True)
        ]
        if self._route is None or self._route.is_over:
            self._route = self._flush_router.open_route(lambda: None)
        timeout_s = self._trail.limits.write_timeout_s
        # Confirmed, because the writer sends a batch again when it has given it up: no late copy may be committed.
        flushed = await self._route.submit(batches, payload, timeout_s, needs_confirmation=True)
        if is_undecided(flushed.results):
            self._route.close()
        left: list[AuditEvent] = []
        for some, result in zip(by_partition.values(), flushed.results, strict=True):
            if result.rejection == Rejection.NONE:
                self._trail.record_written(some)
                continue
            left += some
            self._record_failure(rejection_text(result.rejection))
            if result.rejection == Rejection.UNKNOWN_TOPIC:
                self._topics.remove([AUDIT_TOPIC])
        return left

    def _record_failure(self, reason: str) -> None:
        """Log the first of several failures."""
        if not self._fails:
            log.warning("audit_not_written", reason=reason)
        self._fails = True


def _time_ms(event: AuditEvent) -> int:
    assert event.time is not None, "the trail gives each event its time"
    return round(event.time.timestamp() * 1000)


def _batch(events: list[AuditEvent]) -> bytes:
    return build_batch(
        [
            Record(number, _time_ms(event), event.principal.encode(), msgspec.json.encode(event))
            for number, event in enumerate(events)
        ]
    )


def _meta(batch: bytes, events: list[AuditEvent]) -> BatchMeta:
    return BatchMeta(len(batch), len(events), max(map(_time_ms, events)), NO_PRODUCER, -1, -1, 0)
