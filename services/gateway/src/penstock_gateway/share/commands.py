"""Sends the commands of share group members to the sequencers, and records their results (KIP-932)."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.contracts.commands import (
    NO_ACQUISITION,
    SHARE_PARTITIONS_PER_COMMAND_MAX,
    AcknowledgedRange,
    AcknowledgeType,
    Outcome,
    RecordsShared,
    Rejected,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.commands.group_sizes import oversize
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.kafkawire.schema import NO_UUID
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.concurrency.slices import Slices
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.topic_cache import TopicCache
from penstock_gateway.metadata.partition_lookup import READ_UNAVAILABLE
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.share.acknowledge import Acknowledged, frees_records
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.partition_queue import PartitionQueues
from penstock_gateway.share.sessions import ShareSession

TICKET_BYTES = 7  # a positive number that is different for each request of a member


async def topic_ids_by_name(topics: TopicCache, names: Iterable[str]) -> dict[str, bytes]:
    """The topics' ids; zeros for topics that do not exist."""
    asked = list(dict.fromkeys(names))
    slices = Slices()
    found = await topics.find([name async for name in slices.of(asked) if is_legal_topic_name(name)])
    return {name: found[name].topic_id if name in found else NO_UUID async for name in slices.of(asked)}


class ShareCommands:
    """Sends the commands of share group members, and records their results."""

    def __init__(
        self,
        *,
        sequencer: SequencerClient,
        queues: PartitionQueues,
        metrics: GatewayMetrics,
        clock: Clock,
        entropy: Entropy,
        limits: ShareLimits,
    ) -> None:
        self._sequencer = sequencer
        self._queues = queues
        self._metrics = metrics
        self._clock = clock
        self._entropy = entropy
        self._limits = limits

    async def share_records(
        self,
        group_id: str,
        member_id: str,
        partitions: Sequence[SharePartition],
        *,
        records_max: int = 0,
        ended: ShareSession | None = None,
    ) -> Outcome:
        """Acknowledge and acquire in one entry; `Unavailable` if the outcome is unknown.

        The records of these partitions that the member acquired through the session `ended` are released.
        """
        command = ShareRecords(
            now_ms=self._clock.now_ms(),
            group_id=group_id,
            member_id=member_id,
            partitions=list(partitions),
            records_max=records_max,
            releases_through=NO_ACQUISITION if ended is None else ended.acquisition,
            ticket=int.from_bytes(self._entropy.take(TICKET_BYTES)) + 1,
            releases_from=NO_ACQUISITION if ended is None else ended.first_acquisition,
        )
        rejected = oversize(command)
        if rejected is not None:
            return rejected
        (outcome,) = await self._sequencer.command([command], deadline_s=self._limits.command_deadline_s)
        return outcome

    async def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledged: Sequence[Acknowledged],
        *,
        ended: ShareSession | None = None,
    ) -> int:
        """Send the valid acknowledgements. Return the duration of acquisition locks in ms, 0 if it is unknown.

        If the session ends, all other records that the member acquired through it are released. Partitions that the
        session no longer has are acknowledged separately. The member may fetch them at another gateway, and its
        acquisitions there may lie between those of this session.
        """
        if ended is not None:
            elsewhere = [each for each in acknowledged if each.key not in ended.partitions]
            if elsewhere:
                lock_ms = await self.acknowledge(group_id, member_id, elsewhere)
                here = [each for each in acknowledged if each.key in ended.partitions]
                return await self.acknowledge(group_id, member_id, here, ended=ended) or lock_ms
        valid = [each for each in acknowledged if not each.error]
        partitions = [SharePartition(*each.key, each.ranges) for each in valid]
        releases = ended is not None and ended.acquisition != NO_ACQUISITION
        if ended is not None and releases:
            named = {each.key for each in valid}
            rest = [SharePartition(*key) for key in ended.partitions if key not in named]
            partitions += rest[: SHARE_PARTITIONS_PER_COMMAND_MAX - len(partitions)]
        if not partitions:
            return 0
        try:
            outcome = await self.share_records(group_id, member_id, partitions, ended=ended)
        except Unavailable as error:
            for each in valid:
                each.error, each.message = READ_UNAVAILABLE, str(error)
            return 0
        assert isinstance(outcome, RecordsShared | Rejected), f"unexpected outcome of acknowledgements: {outcome}"
        for place, each in enumerate(valid):
            self.record_result(each, outcome, place)
        if releases or frees_records(valid):
            self._queues.wake(group_id)
        return outcome.lock_duration_ms if isinstance(outcome, RecordsShared) else 0

    def record_result(self, acknowledged: Acknowledged, outcome: RecordsShared | Rejected, place: int) -> None:
        """Record the outcome for the partition at this place in the command."""
        rejection = (
            outcome.rejection if isinstance(outcome, Rejected) else outcome.partitions[place].acknowledge_rejection
        )
        acknowledged.error = error_of(rejection)
        if isinstance(outcome, Rejected):
            acknowledged.message = outcome.message or None
        if acknowledged.error:
            self._metrics.share_rejected.labels(acknowledged.error.name).inc()
            return
        for each in acknowledged.ranges:
            self._count(each)

    def _count(self, acknowledged: AcknowledgedRange) -> None:
        types = acknowledged.acknowledge_types
        if len(types) == 1:
            counts = {types[0]: acknowledged.last - acknowledged.first + 1}
        else:
            counts = {each: types.count(each) for each in set(types)}
        for acknowledge_type, count in counts.items():
            self._metrics.share_acknowledged[AcknowledgeType(acknowledge_type)].inc(count)


class HasShareCommands(Protocol):
    @property
    def share_commands(self) -> ShareCommands: ...
