"""Writes the pending dead letters of share groups to their topics, and ends them.

All live gateways choose the same one of them for a group, by rendezvous hash. Others continue if it makes no progress.
So two gateways may write a dead letter, and none is lost: it stays pending until one has written it.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from penstock.contracts.batches import BatchMeta
from penstock.contracts.commands import EndDeadLetters, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import FlushBatch
from penstock.contracts.queries.share import (
    DeadLetterGroup,
    DeadLetterGroupsQuery,
    DeadLetterGroupsView,
    DeadLettersQuery,
    DeadLettersView,
)
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import rejection_text
from penstock.kafkawire.records import read_batch_header, stamp_batch
from penstock.runtime.bus.presence import Directory
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_gateway.dead_letters.letters import Letter, LetterBatch, batches_of, ended
from penstock_gateway.dead_letters.limits import DeadLetterLimits
from penstock_gateway.dead_letters.source import DeadRecordReader, letters_of
from penstock_gateway.dead_letters.topic import DeadLetterTopics
from penstock_gateway.kafka.broker_view import rendezvous_weight
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.produce.flush_router import FlushRouter
from penstock_gateway.produce.producer_route import ProducerRoute, is_undecided
from penstock_gateway.produce.topic_rules import TopicRules, rules_of

log = structlog.get_logger()


class _Waiting(msgspec.Struct):
    """A group of another gateway, one of its dead letters, and since when that one is pending."""

    seen: DeadLetterGroup
    since_s: float


class DeadLetterWriter:
    """Writes the dead letters of the groups that this gateway is chosen for."""

    def __init__(
        self,
        *,
        topics: DeadLetterTopics,
        reader: DeadRecordReader,
        sequencer: SequencerClient,
        flush_router: FlushRouter,
        directory: Directory,
        instance: str,
        clock: Clock,
        metrics: GatewayMetrics,
        storage_error: Callable[[], str],
        limits: DeadLetterLimits,
    ) -> None:
        """`storage_error`: why the cluster stores no more records, or ""."""
        self._topics = topics
        self._reader = reader
        self._sequencer = sequencer
        self._flush_router = flush_router
        self._directory = directory
        self._instance = instance
        self._clock = clock
        self._metrics = metrics
        self._storage_error = storage_error
        self._limits = limits
        self._announced = asyncio.Event()
        self._waiting: dict[str, _Waiting] = {}
        self._after = ""  # the group after which the next round begins
        self._route: ProducerRoute | None = None
        self._failing: set[str] = set()  # groups whose last round failed: only the first failure is logged
        self._slots = asyncio.Semaphore(limits.groups_at_once_max)

    def record_announced(self, groups: int) -> None:
        """Record that so many groups have pending dead letters. There is an announcement each second at least."""
        if groups:
            self._announced.set()
        else:
            self._waiting.clear()
            self._failing.clear()

    async def run(self) -> None:
        """Write dead letters until cancelled."""
        while True:
            await self._announced.wait()
            self._announced.clear()
            try:
                await self.write_all()
            except Unavailable as error:
                log.info("dead_letters_not_known", error=str(error))
            await asyncio.sleep(self._limits.pause_s)

    async def write_all(self) -> None:
        """Write the pending dead letters of this gateway's groups once; `Unavailable` if they are not known."""
        query = DeadLetterGroupsQuery(0, self._after)
        view = await self._sequencer.query("dead_letter_groups", query, DeadLetterGroupsView)
        self._remove_finished(view)
        self._after = view.groups[-1].group_id if view.is_more else ""
        if view.is_more:
            self._announced.set()
        due = [each.group_id for each in view.groups if self._is_due(each)]
        async with asyncio.TaskGroup() as tasks:
            for group_id in due:
                tasks.create_task(self._write_group(group_id))

    def _remove_finished(self, view: DeadLetterGroupsView) -> None:
        """Remove the groups without dead letters from this part of the list: it begins after `_after`."""
        pending = {each.group_id for each in view.groups}
        last = view.groups[-1].group_id if view.is_more else None
        for group_id in self._waiting.keys() - pending:
            if group_id > self._after and (last is None or group_id < last):
                del self._waiting[group_id]
        self._failing &= self._waiting.keys()

    def _is_due(self, group: DeadLetterGroup) -> bool:
        """Whether this gateway is chosen for the group, or those before it made no progress for their time."""
        live = {each.instance for each in self._directory.live("gateway")} - {self._instance}
        own = rendezvous_weight(group.group_id, self._instance)
        before = sum(rendezvous_weight(group.group_id, other) > own for other in live)
        now_s = self._clock.monotonic_s()
        waiting = self._waiting.get(group.group_id)
        if not before or waiting is None or waiting.seen != group:
            waiting = self._waiting[group.group_id] = _Waiting(group, now_s)
        return now_s - waiting.since_s >= before * self._limits.take_over_s

    async def _write_group(self, group_id: str) -> None:
        async with self._slots:
            try:
                for _ in range(self._limits.views_per_round_max):
                    query = DeadLettersQuery(0, group_id)
                    view = await self._sequencer.query("dead_letters", query, DeadLettersView)
                    if not view.partitions or not await self._write(group_id, view):
                        return
                    self._failing.discard(group_id)
                self._announced.set()
            except Unavailable as error:
                if group_id not in self._failing:
                    log.warning("dead_letters_not_written", group=group_id, error=str(error))
                self._failing.add(group_id)

    async def _write(self, group_id: str, view: DeadLettersView) -> bool:
        """Write these dead letters; whether any has ended, so that the next ones may be written."""
        topic = await self._topics.find(view)
        by_partition = [(partition, letters_of(partition)) for partition in view.partitions]
        if isinstance(topic, str):
            await self._drop(group_id, [each for _, letters in by_partition for each in letters], topic)
            return True
        if why := self._storage_error():
            raise Unavailable(why)
        letters: list[Letter] = []
        for partition, its_letters in by_partition:
            copied = view.copies_records
            letters += await self._reader.with_copies(partition, its_letters) if copied else its_letters
        return await self._submit(group_id, topic, letters)

    async def _submit(self, group_id: str, topic: TopicView, letters: Sequence[Letter]) -> bool:
        """Write the letters, one batch per partition at a time, in their order."""
        rules = rules_of(topic.configs)
        bytes_max = min(self._flush_router.batch_bytes_max, rules.batch_bytes_max)
        batches = batches_of(
            group_id, letters, partitions=topic.partitions, now_ms=self._clock.now_ms(), bytes_max=bytes_max
        )
        has_ended = False
        while batches:
            now = list({each.partition: each for each in reversed(batches)}.values())
            batches = [each for each in batches if not any(each is other for other in now)]
            good = []
            for each in now:
                if why := _rejection(each, rules, bytes_max):
                    await self._drop(group_id, each.letters, f"the topic {topic.name} accepts no such record: {why}")
                    has_ended = True
                else:
                    good.append(each)
            has_ended |= await self._flush(group_id, topic, rules, good)
        return has_ended

    async def _flush(self, group_id: str, topic: TopicView, rules: TopicRules, batches: Sequence[LetterBatch]) -> bool:
        if not batches:
            return False
        now_ms = self._clock.now_ms()
        payload: list[bytes | bytearray] = []
        flushed_batches: list[FlushBatch] = []
        for each in batches:
            batch, header = each.batch, read_batch_header(each.batch)
            stamped = stamp_batch(batch, header, now_ms) if rules.append_time else (batch, header)
            payload.append(stamped[0])
            meta = BatchMeta(
                len(batch), header.record_count, stamped[1].max_timestamp, -1, -1, -1, stamped[1].attributes
            )
            flushed_batches.append(FlushBatch(topic.topic_id, each.partition, meta))
        route = self._route
        if route is None or route.is_over:
            route = self._route = self._flush_router.open_route(lambda: None)
        # Confirmed, because a batch that was given up is written again: no late copy may be committed.
        flushed = await route.submit(
            flushed_batches,
            payload,
            self._limits.write_timeout_s,
            needs_confirmation=True,
            is_express=rules.is_express,
        )
        if is_undecided(flushed.results):
            route.close()  # another group may have opened the next one
        return await self._record(group_id, topic, batches, [each.rejection for each in flushed.results])

    async def _record(
        self, group_id: str, topic: TopicView, batches: Sequence[LetterBatch], rejections: Sequence[int]
    ) -> bool:
        """End the letters that are written; `Unavailable` if some have to be written again.

        No rejection is the fault of a letter, which has no producer. It may be of all batches in a segment.
        """
        written = [letter for each, why in zip(batches, rejections, strict=True) if not why for letter in each.letters]
        await self._end(group_id, written)
        self._count(written)
        again = {rejection_text(why) for why in rejections if why}
        if again:
            self._topics.remove(topic.name)
            raise Unavailable(f"topic {topic.name}: {', '.join(sorted(again))}")
        return True

    async def _drop(self, group_id: str, letters: Sequence[Letter], reason: str) -> None:
        """End dead letters that cannot be written."""
        log.warning("dead_letters_dropped", group=group_id, records=len(letters), reason=reason)
        await self._end(group_id, letters)
        self._metrics.share_dead_letters["dropped"].inc(len(letters))

    async def _end(self, group_id: str, letters: Sequence[Letter]) -> None:
        if letters:
            command = EndDeadLetters(self._clock.now_ms(), group_id, ended(letters))
            (outcome,) = await self._sequencer.command([command], deadline_s=self._limits.command_deadline_s)
            if isinstance(outcome, Rejected):  # else this round would write the same letters again
                raise Unavailable(f"the letters are not ended: {outcome.message or outcome.rejection.name.lower()}")

    def _count(self, written: Sequence[Letter]) -> None:
        copies = sum(each.record is not None for each in written)
        self._metrics.share_dead_letters["copied"].inc(copies)
        self._metrics.share_dead_letters["context"].inc(len(written) - copies)


def _rejection(each: LetterBatch, rules: TopicRules, bytes_max: int) -> str:
    """Why the topic accepts no such batch; "" if it does."""
    if len(each.batch) > bytes_max:
        return f"it has {len(each.batch)} bytes"
    if rules.needs_keys and any(letter.record is None or letter.record.key is None for letter in each.letters):
        return "it is compacted, and a dead letter has no key"
    return ""
