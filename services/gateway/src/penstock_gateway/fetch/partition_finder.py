"""Finds the extents to read of each partition of a fetch: in the tail index, or by a plan from the sequencers."""

from collections.abc import Sequence

import msgspec
import structlog

from penstock.contracts.commands import Tick
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.log import PartitionPlan, Plan, PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.fetch import FetchPartition
from penstock.kafkawire.error_codes import ErrorCode
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.fetch.fetch_partition import READ_COMMITTED, RequestedPartition, readable_end
from penstock_gateway.fetch.limits import FetchLimits
from penstock_gateway.fetch.log_reader import LogReader
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE, locate, rejection_error
from penstock_gateway.tail.tail_index import PartitionKey, view_of
from penstock_gateway.tail.tail_subscriber import TailSubscriber

log = structlog.get_logger()


class PartitionFinder:
    """Fills in `key`, `view` and `error` of requested partitions."""

    def __init__(
        self,
        *,
        log_reader: LogReader,
        tail: TailSubscriber,
        topics: TopicCache,
        sequencer: SequencerClient,
        clock: Clock,
        limits: FetchLimits,
    ) -> None:
        self._log_reader = log_reader
        self._tail = tail
        self._topics = topics
        self._sequencer = sequencer
        self._clock = clock
        self._limits = limits

    async def locate(self, partitions: Sequence[RequestedPartition], slices: Slices) -> None:
        """Find which partitions exist."""
        located = await locate(self._topics, (each.topic for each in partitions))
        async for each in slices.of(partitions):
            partition = each.request.partition
            topic = located.partition(each.topic, partition, each.request.current_leader_epoch)
            if isinstance(topic, ErrorCode):
                each.key, each.error = None, topic
            else:
                each.key, each.error = (topic.topic_id, partition), ErrorCode.NONE
                each.name, each.leader_epoch = topic.name, topic.leader_epoch

    async def look(
        self, partitions: Sequence[RequestedPartition], bytes_max: int, isolation_level: int, slices: Slices
    ) -> None:
        """Find the extents to read now: in the tail index if it has them, else from the sequencers."""
        unknown = []
        async for each in slices.of(partitions):
            if each.key is None:
                continue
            its_bytes_max = min(each.request.partition_max_bytes, bytes_max)
            each.view = self._tail.lookup(each.key, each.request.fetch_offset, its_bytes_max)
            if each.view is None:
                unknown.append((each, each.key))
        if unknown:
            await self._plan(unknown, bytes_max)
        _drop_unreadable(partitions, isolation_level)

    async def look_again(self, partitions: Sequence[RequestedPartition], bytes_max: int, isolation_level: int) -> None:
        """Ask the sequencers about partitions whose known extents could not be read."""
        for each in partitions:
            assert each.key is not None, "only partitions that exist are read"
            self._tail.remove(each.key)
        await self._plan([(each, each.key) for each in partitions if each.key is not None], bytes_max)
        _drop_unreadable(partitions, isolation_level)

    async def _plan(self, unknown: list[tuple[RequestedPartition, PartitionKey]], bytes_max: int) -> None:
        """Get the extents to read from the sequencers, or set the error."""
        try:
            await self._plan_up_to_date(unknown, bytes_max)
        except Unavailable as error:
            log.warning("fetch_not_planned", partitions=len(unknown), error=str(error))
            for each, _ in unknown:
                each.error = READ_UNAVAILABLE

    async def _plan_up_to_date(self, unknown: list[tuple[RequestedPartition, PartitionKey]], bytes_max: int) -> None:
        plan = await self._ask_plan(unknown, bytes_max)
        ahead = [
            pair
            for pair, partition in zip(unknown, plan.partitions, strict=True)
            if _is_ahead(pair[0].request, partition)
        ]
        if not ahead:
            return
        # The client is ahead of the replica that answered, perhaps because it read through another gateway. A new
        # command is in the journal after all entries that a client can have read. So the next plan includes them.
        tick = Tick(self._clock.now_ms())
        await self._sequencer.command([tick], deadline_s=self._limits.barrier_deadline_s)
        await self._ask_plan(ahead, bytes_max)

    async def _ask_plan(self, unknown: list[tuple[RequestedPartition, PartitionKey]], bytes_max: int) -> Plan:
        ahead = [self._log_reader.planned_ahead_bytes(key, each.request.fetch_offset) for each, key in unknown]
        partitions = [
            PlanPartition(*key, each.request.fetch_offset, min(each.bytes_max, bytes_max) + more)
            for (each, key), more in zip(unknown, ahead, strict=True)
        ]
        plan = await self._sequencer.query("plan", PlanQuery(0, partitions, bytes_max + sum(ahead)), Plan)
        self._tail.learn(plan, [each.request.fetch_offset for each, _ in unknown])
        for (each, _), partition in zip(unknown, plan.partitions, strict=True):
            each.error = rejection_error(each.topic, partition.rejection)
            each.view = view_of(partition)
        return plan


def _drop_unreadable(partitions: Sequence[RequestedPartition], isolation_level: int) -> None:
    """Drop extents without a record that a fetch of this isolation level may read."""
    if isolation_level != READ_COMMITTED:
        return
    for each in partitions:
        view = each.view
        end_offset = -1 if view is None else readable_end(view, isolation_level)
        if view is not None and view.extents and view.extents[-1].base_offset >= end_offset:
            extents = [extent for extent in view.extents if extent.base_offset < end_offset]
            each.view = msgspec.structs.replace(view, extents=extents)


def _is_ahead(request: FetchPartition, partition: PartitionPlan) -> bool:
    is_out = partition.rejection is Rejection.OFFSET_OUT_OF_RANGE
    return is_out and request.fetch_offset > partition.high_watermark
