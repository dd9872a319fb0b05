"""Maintains the rest of the bucket: aborts abandoned uploads, and reports keys that do not belong to Penstock.

It also deletes what a cleanup left before its cluster came back.

Objects under unknown keys are counted and logged, but stay. The sequencers delete their own objects: the marker,
snapshots and the archive. A crash between two steps leaves some uploads for the next time.
"""

from functools import partial

import structlog

from penstock.contracts.commands import MAINTENANCE_TASK
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import check_token
from penstock.objectstore import ObjectInfo, ObjectStore
from penstock.objectstore.store import LIST_LIMIT_MAX
from penstock.runtime.clock import Clock
from penstock.segment.keys import (
    SHARDS,
    is_cleanup_key,
    parse_journal_archive_key,
    parse_own_segment_key,
    parse_snapshot_key,
    segments_prefix,
)
from penstock_janitor.coordination.guard import Guard, lost_entry_key, marker_key
from penstock_janitor.coordination.task_leases import LeasedTasks, TaskKind, TaskLeases, return_undone
from penstock_janitor.deletion.deleter import Deleter, PendingDelete
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.rules.classification import Now, Rules, classify_cleanup, classify_unfinished

WAIT_MAX_S = 60.0
LOGGED_MAX = 20  # unknown keys that one step writes to the log
FAILURES_MAX = 20  # aborts that fail in one step, because each of them may take all its retries
NO_PREFIX = ""  # the store's address contains the prefix
LAST_NAME = "z" * 200  # sorts after every other name: the last letter, and as many as a part of a key may have

log = structlog.get_logger()


class StoreMaintenance:
    """The loop over uploads and unknown keys; one janitor at a time does it."""

    def __init__(
        self,
        *,
        cluster: str,
        store: ObjectStore,
        guard: Guard,
        tasks: TaskLeases,
        deleter: Deleter,
        rules: Rules,
        clock: Clock,
        metrics: JanitorMetrics,
        interval_s: float,
    ) -> None:
        self._cluster = cluster
        self._prefix = f"{check_token('cluster', cluster)}/"
        self._store = store
        self._guard = guard
        self._tasks = tasks
        self._deleter = deleter
        self._rules = rules
        self._clock = clock
        self._metrics = metrics
        self._interval_s = interval_s
        self._kind = TaskKind(MAINTENANCE_TASK, MAINTENANCE_TASK + 1, int(interval_s * 1000))
        self._unknown = (0.0, 0)  # when unknown keys were last counted, their number

    async def step(self) -> float:
        """Do the maintenance once, if it is due; the seconds until the next step."""
        await self._guard.journal()
        leased = await self._tasks.take(self._kind)
        if not leased.numbers:
            self._measure()
            return min(leased.wait_s, WAIT_MAX_S, self._interval_s)
        try:
            await self._guard.check()
            await self._end_uploads(leased)
            await self._look_elsewhere(leased)
        except PenstockError:
            await return_undone(self._tasks, leased)
            raise
        await self._tasks.end(leased, done=True)
        return min(self._interval_s, WAIT_MAX_S)

    async def _end_uploads(self, leased: LeasedTasks) -> None:
        """Abort old uploads from one answer of the store. The next step aborts the rest, also those that failed."""
        failures = 0
        for upload in await self._store.unfinished(self._prefix):
            now = Now(leased.clock_ms, self._clock.now_ms())
            classification = classify_unfinished(upload.begun_ms, now, self._rules)
            if not classification.is_deletable:
                continue
            try:
                await self._deleter.end_upload(upload, classification)
            except PenstockError as error:
                self._metrics.failures.labels("house").inc()
                log.warning("upload_not_aborted", key=upload.key, reason=str(error))
                failures += 1
            await self._tasks.renew(leased)
            if failures >= FAILURES_MAX:
                break

    async def _look_elsewhere(self, leased: LeasedTasks) -> None:
        """Count unknown keys of the cluster, and delete objects of cleanups. The sweep lists the shards of segments."""
        first = f"{segments_prefix(NO_PREFIX, self._cluster)}{0:03}/"
        last = f"{segments_prefix(NO_PREFIX, self._cluster)}{SHARDS - 1:03}/{LAST_NAME}"
        unknown = 0
        page = await self._store.list(self._prefix)
        while page:
            for info in page:
                if is_cleanup_key(info.key, NO_PREFIX, self._cluster):
                    await self._end_cleanup(info, leased)
                elif not first <= info.key <= last and not is_known_key(info.key, self._cluster):
                    unknown += 1
                    if unknown <= LOGGED_MAX:
                        log.warning("object_unknown", key=info.key, bytes=info.size_bytes)
            if len(page) < LIST_LIMIT_MAX:
                break
            await self._tasks.renew(leased)
            after = page[-1].key
            page = await self._store.list(self._prefix, after if after < first else max(after, last))
        self._unknown = (self._clock.monotonic_s(), unknown)
        self._measure()

    def _measure(self) -> None:
        """Set the metric. An old count is left out: by now the metric of another janitor may contain it."""
        counted_s, count = self._unknown
        is_old = counted_s < self._clock.monotonic_s() - 2 * self._interval_s
        self._metrics.unknown_objects.labels("elsewhere").set(0 if is_old else count)

    async def _end_cleanup(self, info: ObjectInfo, leased: LeasedTasks) -> None:
        classification = classify_cleanup(info.modified_ms, Now(leased.clock_ms, self._clock.now_ms()), self._rules)
        if classification.is_deletable:
            await self._deleter.delete([PendingDelete(info.key, info.size_bytes, classification)])


def is_known_key(key: str, cluster: str) -> bool:
    """Whether an object of the cluster may have this key."""
    if key in (marker_key(cluster), lost_entry_key(cluster)):
        return True
    own_segment = partial(parse_own_segment_key, prefix=NO_PREFIX, cluster=cluster)
    for parse in (own_segment, parse_snapshot_key, parse_journal_archive_key):
        try:
            parse(key)
        except Invalid:
            continue
        return True
    return False
