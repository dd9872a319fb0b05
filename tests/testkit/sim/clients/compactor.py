"""A simple compactor: it plans, waits, writes a segment, and replaces its inputs with the segment.

It uses sequencers and the store as every service does, and gives a job up after an error. Janitors delete the
replaced segments.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from penstock.contracts.batches import Extent
from penstock.contracts.commands import PerItem, ReplaceExtents
from penstock.contracts.errors import PenstockError
from penstock.contracts.ids import ENTROPY_BYTES, SegmentId, new_segment_id
from penstock.contracts.levels import COMMAND_LEVELS
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection
from penstock.objectstore import ObjectStore, streamed_put
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.segment.keys import segment_key
from penstock_sequencer.core.state.cluster import State, Topic
from tests.testkit.loads.compaction import EVERYTHING, Compacted, Input, compacted
from tests.testkit.sim.clients.settings import CompactorSettings

PLACE_BYTES = 500  # so that the offset indexes of short runs have several entries
COMMIT_DEADLINE_S = 10.0
RUN_EXTENTS_MAX = 12
LEVEL_MAX = 2


class Compactor:
    """Merges random contiguous extents in the partitions of a random topic, for ever."""

    def __init__(
        self,
        sequencer: SequencerClient,
        store: ObjectStore,
        clock: Clock,
        stream: random.Random,
        *,
        cluster: str,
        topics: Sequence[str],
        state: Callable[[], State],  # of the oracle, to know when to begin
        settings: CompactorSettings,
    ) -> None:
        self._sequencer = sequencer
        self._store = store
        self._clock = clock
        self._stream = stream
        self._cluster = cluster
        self._topics = topics
        self._state = state
        self._settings = settings
        self.replaced = 0  # runs
        self.rejected = 0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(self._stream.uniform(0, self._settings.pause_s_max))
            found = self._state().topics.get(self._stream.choice(self._topics))
            if found is None or self._state().level < COMMAND_LEVELS[ReplaceExtents]:
                continue
            try:
                await self._work(found)
            except PenstockError:
                continue  # the next job makes a new plan

    async def _work(self, topic: Topic) -> None:
        topic_id = topic.topic_id
        wanted = [PlanPartition(topic_id, each.number, each.log_start_offset, EVERYTHING) for each in topic.partitions]
        plan = await self._sequencer.query("plan", PlanQuery(0, wanted, EVERYTHING), Plan)
        planned = [(topic_id, each.partition, self._some_of(each.extents)) for each in plan.partitions]
        inputs = [each for each in planned if each[2]]
        if not inputs:
            return
        made = await self._make(inputs)
        await asyncio.sleep(self._stream.uniform(0, self._settings.job_s_max))
        (outcome,) = await self._sequencer.command([made.command], deadline_s=COMMIT_DEADLINE_S)
        if isinstance(outcome, PerItem):
            self.replaced += outcome.rejections.count(Rejection.NONE)
            self.rejected += len(outcome.rejections) - outcome.rejections.count(Rejection.NONE)

    def _some_of(self, extents: list[Extent]) -> list[Extent]:
        first = self._stream.randrange(len(extents) + 1)
        return extents[first : first + self._stream.randint(1, RUN_EXTENTS_MAX)]

    async def _make(self, inputs: list[Input]) -> Compacted:
        born_ms = self._clock.now_ms()
        segment_id = new_segment_id(born_ms, self._stream.randbytes(ENTROPY_BYTES))
        level = self._stream.randint(1, LEVEL_MAX)
        data = {extent: await self._read(extent) for _, _, extents in inputs for extent in extents}
        made = compacted(segment_id, inputs, data.__getitem__, now_ms=born_ms, level=level, place_bytes=PLACE_BYTES)
        async with streamed_put(self._store, self._key(segment_id, level)) as put:
            for buffer in made.body:
                await put.write(buffer)
        return made

    async def _read(self, extent: Extent) -> bytes:
        key = self._key(extent.segment.segment_id, extent.segment.level)
        return await self._store.get_range(key, extent.position, extent.length)

    def _key(self, segment_id: SegmentId, level: int) -> str:
        return segment_key("", self._cluster, level, segment_id)
