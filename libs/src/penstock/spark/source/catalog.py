"""Queries to the sequencers for the planning of reads: partitions, offsets and extents of topics."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import structlog

from penstock.contracts.errors import Conflict, Invalid
from penstock.contracts.queries.log import (
    OffsetFound,
    OffsetOf,
    OffsetsQuery,
    OffsetsView,
    PartitionPlan,
    Plan,
    PlanPartition,
    PlanQuery,
)
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView
from penstock.contracts.rejections import Rejection, check_known
from penstock.runtime.bus.listings import all_topics
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats.client import NatsLimits, connect_nats
from penstock.runtime.process.logs import configure_logs
from penstock.spark.config import ClusterAddress
from penstock.spark.source.config import TopicChoice
from penstock.spark.source.offsets import LogBounds, Partition
from penstock.spark.source.splits import Wanted

CLIENT_NAME = "penstock-spark"
# No user waits for a sentence, a query connects often, and Spark's own work may stop this process for seconds.
PATIENT = NatsLimits(connect_deadline_s=30.0, connect_attempt_s=10.0)
PARTITIONS_PER_QUERY = 500
EVERYTHING_BYTES = 2**62  # a budget that no plan fills
NO_OFFSET = -1  # in no log: the answer to a query for it has the log's bounds and no extents

Result = TypeVar("Result")


class _Search(msgspec.Struct):
    """The wanted offsets of one partition, and the progress of the search for their extents."""

    wanted: Wanted
    next_offset: int  # all extents and aborted transactions before it are known


class Catalog:
    """Queries the sequencers; a later answer never reflects an older state than an earlier answer."""

    def __init__(self, sequencers: SequencerClient) -> None:
        self._sequencers = sequencers

    async def topics(self, choice: TopicChoice) -> dict[str, TopicView]:
        """The topics of a choice by name, with all acknowledged changes; `Invalid` if a named one is missing."""
        if choice.patterns:
            topics = await all_topics(self._sequencers, fresh=True)
        else:
            query = MetadataQuery(0, list(choice.names), fresh=True)
            topics = (await self._sequencers.query("metadata", query, MetadataView)).topics
        found = {
            topic.name: topic for topic in sorted(topics, key=lambda each: each.name) if choice.matches(topic.name)
        }
        missing = sorted(set(choice.names) - set(found))
        if missing:
            raise Invalid(f"there is no topic {missing[0]!r}; `penstock topic list` lists all")
        return found

    async def bounds(self, topics: Mapping[str, TopicView], *, committed: bool = True) -> dict[Partition, LogBounds]:
        """The first and the end offset of every partition, the end for readers of committed records or of all."""
        asked = [
            (topic.name, PlanPartition(topic.topic_id, number, NO_OFFSET, 0))
            for topic in topics.values()
            for number in range(topic.partitions)
        ]
        found = {}
        for (name, partition), plan in zip(asked, await self._plans([each for _, each in asked]), strict=True):
            if plan.rejection == Rejection.UNKNOWN_TOPIC:
                raise Conflict(f"topic {name!r} was deleted during the read")
            end = plan.last_stable_offset if committed else plan.high_watermark
            found[name, partition.partition] = LogBounds(plan.log_start_offset, end)
        return found

    async def extents(self, wanted: Sequence[Wanted], bytes_max: int | None = None) -> list[Wanted]:
        """The same with the extents of the offsets, and the aborted transactions in these extents.

        With `bytes_max`, up to about so many bytes of each partition, and `to_offset` is the end of these bytes.
        `Conflict` if some of the offsets do not exist, or no longer.
        """
        searches = [_Search(msgspec.structs.replace(each, extents=[], aborted=[]), each.from_offset) for each in wanted]
        budget = bytes_max or EVERYTHING_BYTES
        waiting = [each for each in searches if _is_waiting(each, budget)]
        while waiting:
            # An answer has space for some extents only. It begins with the first partitions.
            asked = waiting[:PARTITIONS_PER_QUERY]
            places = [
                PlanPartition(each.wanted.topic_id, each.wanted.partition, each.next_offset, budget) for each in asked
            ]
            plans = await self._plans(places)
            if not any(plan.extents or plan.rejection for plan in plans):
                first = waiting[0]
                raise Conflict(f"{first.wanted.topic} [{first.wanted.partition}] has no offset {first.next_offset}")
            for each, plan in zip(asked, plans, strict=True):
                _take(each, plan)
            waiting = [each for each in waiting if _is_waiting(each, budget)]
        return [each.wanted if bytes_max is None else _cut(each) for each in searches]

    async def offsets_at(self, wanted: Sequence[OffsetOf]) -> list[OffsetFound]:
        """The extent of a time in each partition's log; none if the time is after the last record."""
        return (await self._sequencers.query("offsets", OffsetsQuery(0, list(wanted)), OffsetsView)).partitions

    async def _plans(self, partitions: Sequence[PlanPartition]) -> list[PartitionPlan]:
        plans: list[PartitionPlan] = []
        for first in range(0, len(partitions), PARTITIONS_PER_QUERY):
            some = list(partitions[first : first + PARTITIONS_PER_QUERY])
            plans += (await self._sequencers.query("plan", PlanQuery(0, some, EVERYTHING_BYTES), Plan)).partitions
        for plan in plans:
            check_known(plan.rejection)
        return plans


def _take(search: _Search, plan: PartitionPlan) -> None:
    wanted = search.wanted
    if plan.rejection == Rejection.UNKNOWN_TOPIC:
        raise Conflict(f"topic {wanted.topic!r} was deleted during the read")
    if plan.rejection != Rejection.NONE:
        raise Conflict(
            f"{wanted.topic} [{wanted.partition}] has the offsets {plan.log_start_offset} to {plan.high_watermark}, "
            f"but the read needs offset {search.next_offset}"
        )
    if not plan.extents:
        return
    # The plan may repeat extents: a query begins where an earlier answer had not all aborted transactions.
    known_end = wanted.extents[-1].last_offset + 1 if wanted.extents else 0
    wanted.extents.extend(
        extent for extent in plan.extents if known_end <= extent.last_offset and extent.base_offset < wanted.to_offset
    )
    wanted.aborted.extend(plan.aborted)
    end = plan.extents[-1].last_offset + 1
    if plan.aborted_end_offset >= 0:
        end = min(end, plan.aborted_end_offset)
    search.next_offset = max(search.next_offset, end)


def _is_waiting(search: _Search, bytes_max: int) -> bool:
    if search.next_offset >= search.wanted.to_offset:
        return False
    return sum(extent.length for extent in search.wanted.extents) < bytes_max


def _cut(search: _Search) -> Wanted:
    wanted = search.wanted
    to_offset = max(wanted.from_offset, min(wanted.to_offset, search.next_offset))
    return msgspec.structs.replace(wanted, to_offset=to_offset)


@contextlib.asynccontextmanager
async def opened_catalog(address: ClusterAddress) -> AsyncIterator[Catalog]:
    """A catalog with its own connection."""
    async with opened_sequencers(address) as sequencers:
        yield Catalog(sequencers)


@contextlib.asynccontextmanager
async def opened_sequencers(address: ClusterAddress) -> AsyncIterator[SequencerClient]:
    """A client of a cluster's sequencers with its own connection."""
    connection = await connect_nats(
        address.nats_url,
        name=CLIENT_NAME,
        user=address.nats_user,
        password=address.nats_password,
        tls=address.nats_tls,
        limits=PATIENT,
    )
    try:
        yield SequencerClient(connection.bus, address.cluster, SystemClock())
    finally:
        await connection.close()


def configure_logs_once() -> None:
    """Log errors only, in a process without log settings, as Spark's processes are."""
    if not structlog.is_configured():
        configure_logs(CLIENT_NAME, CLIENT_NAME, "error", "auto")


def run_apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end in a thread with its own event loop; the caller may have one too."""
    configure_logs_once()
    with ThreadPoolExecutor(1, "penstock-queries") as pool:
        return pool.submit(asyncio.run, work).result()
