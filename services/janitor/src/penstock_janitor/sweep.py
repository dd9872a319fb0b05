"""Looks through the bucket, slowly, for objects of segments that no entry of the journal knows or ever will.

The keys of segments spread over a thousand shards, and each is a chore of its own: janitors share them, and what one
did is not done again after its death. What a death between two steps leaves:

1. TakeTaskLease: leases, which keep others from these shards as long as they last.
2. Listing and `known_segments`: nothing was begun.
3. The orphans are deleted, some or all: they are nobody's. The next look at the shard finds the rest.
4. EndTaskLease: all is done. Without it the shards are looked through once more.
"""

import asyncio

import msgspec
import structlog

from penstock.contracts.commands import SHARD_TASKS
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import SegmentId
from penstock.contracts.queries.janitor import KnownSegmentsQuery, KnownSegmentsView
from penstock.objectstore import ObjectInfo, ObjectStore
from penstock.objectstore.store import DELETE_KEYS_MAX, LIST_LIMIT_MAX
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.segment.keys import parse_segment_key, segments_prefix
from penstock_janitor.deletion import Deletion, PendingDelete
from penstock_janitor.identity import Guard, rebuilt_ms
from penstock_janitor.judge import Now, Rules, judge_segment, may_be_orphan
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.task_leases import Kind, Taken, TaskLeases, give_up

SHARDS_AT_ONCE = 50  # so that a sweep is forty entries in the journal
SHARE_OF_INTERVAL = 0.5  # that a sweep takes by one janitor, so that there is time for what fails
WAIT_MAX_S = 60.0
NO_PREFIX = ""  # the store's address has one of its own

log = structlog.get_logger()


class Suspect(msgspec.Struct, frozen=True):
    """An object that is old enough to be an orphan."""

    info: ObjectInfo
    level: int
    segment_id: SegmentId


class Sweep:
    """One janitor's share of the shards."""

    def __init__(
        self,
        *,
        cluster: str,
        store: ObjectStore,
        sequencers: SequencerClient,
        guard: Guard,
        tasks: TaskLeases,
        deletion: Deletion,
        rules: Rules,
        clock: Clock,
        metrics: JanitorMetrics,
        interval_s: float,
        leaving: asyncio.Event,
    ) -> None:
        self._prefix = segments_prefix(NO_PREFIX, cluster)
        self._store = store
        self._sequencers = sequencers
        self._guard = guard
        self._tasks = tasks
        self._deletion = deletion
        self._rules = rules
        self._clock = clock
        self._metrics = metrics
        self._interval_s = interval_s
        self._leaving = leaving
        self._kind = Kind(0, SHARD_TASKS, int(interval_s * 1000))
        self._orphaned: dict[int, tuple[float, int]] = {}  # shard -> when some were found last, their bytes
        self._unknown: dict[int, int] = {}  # shard -> objects without a segment's key

    async def step(self) -> float:
        """Look through some shards, if any are due; the seconds until the next."""
        await self._guard.journal()
        taken = await self._tasks.take(self._kind, SHARDS_AT_ONCE)
        if not taken.numbers:
            return min(taken.wait_s, WAIT_MAX_S, self._interval_s)
        try:
            await self._guard.check()
            is_done = await self._look_through(taken)
        except PenstockError:
            await give_up(self._tasks, taken)
            raise
        await self._tasks.end(taken, done=is_done)
        return self._interval_s * SHARE_OF_INTERVAL * len(taken.numbers) / SHARD_TASKS

    async def _look_through(self, taken: Taken) -> bool:
        """The shards one after the other; false if we are leaving and did not come to an end."""
        suspects: list[Suspect] = []
        for shard in taken.numbers:
            self._orphaned.pop(shard, None)
            self._unknown.pop(shard, None)
            after = ""
            while True:
                if self._leaving.is_set():
                    return False
                page = await self._store.list(f"{self._prefix}{shard:03}/", after)
                suspects += self._suspects(shard, page, taken)
                if len(suspects) >= DELETE_KEYS_MAX:
                    suspects = await self._settle(suspects)
                await self._tasks.keep(taken)
                if len(page) < LIST_LIMIT_MAX:
                    break
                after = page[-1].key
        while suspects:
            suspects = await self._settle(suspects)
        self._measure()
        return True

    def _suspects(self, shard: int, page: list[ObjectInfo], taken: Taken) -> list[Suspect]:
        """Those that are not too young to be asked for; what has no segment's key is counted."""
        now = Now(taken.clock_ms, self._clock.now_ms())
        suspects = []
        for info in page:
            try:
                level, segment_id = parse_segment_key(info.key)
            except Invalid:
                self._unknown[shard] = self._unknown.get(shard, 0) + 1
                log.warning("object_unknown", key=info.key, bytes=info.size_bytes)
                continue
            if may_be_orphan(segment_id, now, self._rules):
                suspects.append(Suspect(info, level, segment_id))
        self._metrics.swept_objects.inc(len(page))
        return suspects

    async def _settle(self, suspects: list[Suspect]) -> list[Suspect]:
        """Delete the orphans among the first of them; the others are returned."""
        asked, left = suspects[:DELETE_KEYS_MAX], suspects[DELETE_KEYS_MAX:]
        query = KnownSegmentsQuery(0, [suspect.segment_id for suspect in asked], fresh=True)
        view = await self._sequencers.query("known_segments", query, KnownSegmentsView)
        journal = await self._guard.check()  # afterwards: so it is no older than the one that has answered
        now = Now(view.clock_ms, self._clock.now_ms(), rebuilt_ms=rebuilt_ms(journal, view.sequence))
        pending_delete = []
        for suspect, known in zip(asked, view.segments, strict=True):
            judgement = judge_segment(suspect.level, suspect.segment_id, known, now, self._rules)
            if judgement.goes:
                pending_delete.append(PendingDelete(suspect.info.key, suspect.info.size_bytes, judgement))
                self._count(suspect.info)
        deleted = await self._deletion.delete(pending_delete)
        if deleted.failure is not None:
            raise deleted.failure
        return left

    def _count(self, info: ObjectInfo) -> None:
        shard = int(info.key.removeprefix(self._prefix).partition("/")[0])
        _, size_bytes = self._orphaned.get(shard, (0, 0))
        self._orphaned[shard] = (self._clock.monotonic_s(), size_bytes + info.size_bytes)

    def _measure(self) -> None:
        """Shards that another janitor looked through since are its to tell of."""
        oldest_s = self._clock.monotonic_s() - 2 * self._interval_s
        self._orphaned = {shard: found for shard, found in self._orphaned.items() if found[0] >= oldest_s}
        self._metrics.bytes.labels("orphaned").set(sum(size_bytes for _, size_bytes in self._orphaned.values()))
        self._metrics.unknown_objects.labels("segments").set(sum(self._unknown.values()))
