"""Searches the bucket slowly for orphans: objects of segments that no journal entry names or can name later.

The keys of segments spread over a thousand shards, and each shard is a task. Janitors share the tasks, and a task that
is done is not repeated after a crash. The state after a crash between two steps:

1. TakeTaskLease: task leases keep other janitors from these shards until the leases end.
2. Listing and `known_segments`: nothing is changed.
3. Some or all orphans are deleted. The next search of the shard finds the rest.
4. EndTaskLease: all is done. Without it the shards are searched again.
"""

import asyncio

import msgspec
import structlog

from penstock.contracts.commands import SHARD_TASKS
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import SegmentId
from penstock.contracts.queries.janitor import KnownSegmentsQuery, KnownSegmentsView
from penstock.objectstore import NotDeleted, ObjectInfo, ObjectStore
from penstock.objectstore.store import DELETE_KEYS_MAX, LIST_LIMIT_MAX
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.segment.keys import parse_own_segment_key, segments_prefix
from penstock_janitor.coordination.guard import Guard
from penstock_janitor.coordination.task_leases import LeasedTasks, TaskKind, TaskLeases, return_undone
from penstock_janitor.deletion.deleter import Deleted, Deleter, PendingDelete
from penstock_janitor.deletion.maintenance import LOGGED_MAX
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.rules.classification import Now, Rules, classify_segment, may_be_orphan
from penstock_janitor.rules.journal import NEVER, rebuilt_ms

WAIT_MAX_S = 60.0
NO_PREFIX = ""  # the store's address contains the prefix
SHARD_DIGITS = 3  # of a shard's number in keys

log = structlog.get_logger()


class SweepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a sweep divides its work."""

    # The digits of a shard's number that one task fixes. With 3, a task is one shard. With 1, it is a hundred shards,
    # and a sweep is ten tasks. All janitors of a cluster need the same value: the journal has only numbers of tasks.
    shard_digits: int = SHARD_DIGITS
    tasks_at_once: int = 50  # leased by one request, so that a sweep is forty entries in the journal
    interval_share: float = 0.5  # the part of the interval in which one janitor sweeps; the rest is for failures


class Suspect(msgspec.Struct, frozen=True):
    """An object that is old enough to be an orphan."""

    info: ObjectInfo
    level: int
    segment_id: SegmentId


class Sweep:
    """The loop over the shards of the bucket; several janitors share them."""

    def __init__(
        self,
        *,
        cluster: str,
        store: ObjectStore,
        sequencers: SequencerClient,
        guard: Guard,
        tasks: TaskLeases,
        deleter: Deleter,
        rules: Rules,
        clock: Clock,
        metrics: JanitorMetrics,
        interval_s: float,
        draining: asyncio.Event,
        limits: SweepLimits,
    ) -> None:
        assert 1 <= limits.shard_digits <= SHARD_DIGITS, f"{limits.shard_digits} digits of a shard"
        self._cluster = cluster
        self._prefix = segments_prefix(NO_PREFIX, cluster)
        self._store = store
        self._sequencers = sequencers
        self._guard = guard
        self._tasks = tasks
        self._deleter = deleter
        self._rules = rules
        self._clock = clock
        self._metrics = metrics
        self._interval_s = interval_s
        self._draining = draining
        self._limits = limits
        count = SHARD_TASKS // 10 ** (SHARD_DIGITS - limits.shard_digits)
        self._kind = TaskKind(0, count, int(interval_s * 1000))
        self._orphaned: dict[int, tuple[float, int]] = {}  # task -> when its last orphan was found, bytes of all
        self._unknown: dict[int, tuple[float, int]] = {}  # task -> when its last unknown key was found, number of all
        self._logged = 0  # unknown keys, in this step

    async def step(self) -> float:
        """Search some shards, if any are due; return the seconds until the next step."""
        await self._guard.journal()
        leased = await self._tasks.take(self._kind, self._limits.tasks_at_once)
        if not leased.numbers:
            self._measure()
            return min(leased.wait_s, WAIT_MAX_S, self._interval_s)
        try:
            await self._guard.check()
            is_done = await self._scan(leased)
        except PenstockError:
            await return_undone(self._tasks, leased)
            raise
        await self._tasks.end(leased, done=is_done)
        return self._interval_s * self._limits.interval_share * len(leased.numbers) / self._kind.stop

    async def _scan(self, leased: LeasedTasks) -> bool:
        """Do the tasks one after the other; false if a drain ended them early."""
        suspects: list[Suspect] = []
        self._logged = 0
        for number in leased.numbers:
            self._orphaned.pop(number, None)
            self._unknown.pop(number, None)
            after = ""
            while True:
                if self._draining.is_set():
                    return False
                page = await self._store.list(self._prefix_of(number), after)
                suspects += self._suspects(number, page, leased)
                if len(suspects) >= DELETE_KEYS_MAX:
                    suspects = await self._settle(suspects)
                await self._tasks.renew(leased)
                if len(page) < LIST_LIMIT_MAX:
                    break
                after = page[-1].key
        while suspects:
            suspects = await self._settle(suspects)
        self._measure()
        return True

    def _suspects(self, number: int, page: list[ObjectInfo], leased: LeasedTasks) -> list[Suspect]:
        """The objects that are old enough to be orphans. Objects whose key is not a segment's are counted."""
        now = Now(leased.clock_ms, self._clock.now_ms(), NEVER, NEVER, NEVER)
        suspects = []
        for info in page:
            try:
                level, segment_id = parse_own_segment_key(info.key, NO_PREFIX, self._cluster)
            except Invalid:
                self._unknown[number] = (self._clock.monotonic_s(), self._unknown.get(number, (0, 0))[1] + 1)
                self._logged += 1
                if self._logged <= LOGGED_MAX:
                    log.warning("object_unknown", key=info.key, bytes=info.size_bytes)
                continue
            if may_be_orphan(segment_id, now, self._rules):
                suspects.append(Suspect(info, level, segment_id))
        self._metrics.swept_objects.inc(len(page))
        return suspects

    async def _settle(self, suspects: list[Suspect]) -> list[Suspect]:
        """Delete the orphans among the first suspects; return the other suspects."""
        asked, left = suspects[:DELETE_KEYS_MAX], suspects[DELETE_KEYS_MAX:]
        query = KnownSegmentsQuery(0, [suspect.segment_id for suspect in asked], fresh=True)
        view = await self._sequencers.query("known_segments", query, KnownSegmentsView)
        journal = (
            await self._guard.check()
        )  # after the query, so that this is not an earlier journal than the one that answered
        now = Now(view.clock_ms, self._clock.now_ms(), NEVER, NEVER, rebuilt_ms(journal, view.sequence))
        pending = []
        for suspect, known in zip(asked, view.segments, strict=True):
            classification = classify_segment(suspect.level, suspect.segment_id, known, now, self._rules)
            if classification.is_deletable:
                pending.append(PendingDelete(suspect.info.key, suspect.info.size_bytes, classification))
                self._count(suspect.info)
        deleted = await self._deleter.delete(pending)
        self._report(deleted)
        return left

    def _report(self, deleted: Deleted) -> None:
        """Raise a failure. If the store only rejects some objects, go on: otherwise they would end each sweep here."""
        failure = deleted.failure
        if failure is None:
            return
        if not isinstance(failure, NotDeleted) or not failure.is_final:
            raise failure
        self._metrics.failures.labels("sweep").inc()
        log.warning("orphans_not_deleted", objects=len(failure.keys), reason=str(failure))

    def _prefix_of(self, number: int) -> str:
        digits = self._limits.shard_digits
        end = "/" if digits == SHARD_DIGITS else ""
        return f"{self._prefix}{number:0{digits}}{end}"

    def _count(self, info: ObjectInfo) -> None:
        number = int(info.key.removeprefix(self._prefix)[: self._limits.shard_digits])
        _, size_bytes = self._orphaned.get(number, (0, 0))
        self._orphaned[number] = (self._clock.monotonic_s(), size_bytes + info.size_bytes)

    def _measure(self) -> None:
        """Set the metrics. Old finds are left out: by now the metrics of another janitor may contain them."""
        oldest_s = self._clock.monotonic_s() - 2 * self._interval_s
        self._orphaned = {number: found for number, found in self._orphaned.items() if found[0] >= oldest_s}
        self._unknown = {number: found for number, found in self._unknown.items() if found[0] >= oldest_s}
        self._metrics.bytes.labels("orphaned").set(sum(size_bytes for _, size_bytes in self._orphaned.values()))
        self._metrics.unknown_objects.labels("segments").set(sum(count for _, count in self._unknown.values()))
