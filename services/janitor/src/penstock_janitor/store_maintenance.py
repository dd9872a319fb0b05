"""Looks after what else there is in the bucket: uploads that nobody will complete, and keys that nobody knows.

Uploads that are old go; keys that are not Penstock's are counted, told of, and left alone. The sequencers' own objects
(the marker, snapshots, the archive) are theirs to delete. A death between two steps leaves some uploads for next time.
"""

import structlog

from penstock.contracts.commands import MAINTENANCE_TASK
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import check_token
from penstock.objectstore import ObjectStore
from penstock.objectstore.store import LIST_LIMIT_MAX
from penstock.runtime.clock import Clock
from penstock.segment.keys import (
    SHARDS,
    parse_journal_archive_key,
    parse_segment_key,
    parse_snapshot_key,
    segments_prefix,
)
from penstock_janitor.deletion import Deletion
from penstock_janitor.identity import Guard, marker_key
from penstock_janitor.judge import Now, Rules, judge_unfinished
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.task_leases import Kind, Taken, TaskLeases, give_up

WAIT_MAX_S = 60.0
TOLD_MAX = 20  # unknown keys that one look names in the log
NO_PREFIX = ""  # the store's address has one of its own
LAST_NAME = "z" * 200  # as long as a key's part may be, of the last letter

log = structlog.get_logger()


class House:
    """One janitor's turn at it."""

    def __init__(
        self,
        *,
        cluster: str,
        store: ObjectStore,
        guard: Guard,
        tasks: TaskLeases,
        deletion: Deletion,
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
        self._deletion = deletion
        self._rules = rules
        self._clock = clock
        self._metrics = metrics
        self._interval_s = interval_s
        self._kind = Kind(MAINTENANCE_TASK, MAINTENANCE_TASK + 1, int(interval_s * 1000))

    async def step(self) -> float:
        """Look around once, if it is due; the seconds until the next look."""
        await self._guard.journal()
        taken = await self._tasks.take(self._kind)
        if not taken.numbers:
            return min(taken.wait_s, WAIT_MAX_S, self._interval_s)
        try:
            await self._guard.check()
            await self._end_uploads(taken)
            await self._tell_of_unknown(taken)
        except PenstockError:
            await give_up(self._tasks, taken)
            raise
        await self._tasks.end(taken, done=True)
        return min(self._interval_s, WAIT_MAX_S)

    async def _end_uploads(self, taken: Taken) -> None:
        """End what is old; where there is more than one answer holds, the rest is another look's."""
        for upload in await self._store.unfinished(self._prefix):
            judgement = judge_unfinished(upload.begun_ms, Now(taken.clock_ms, self._clock.now_ms()), self._rules)
            if judgement.goes:
                await self._deletion.end_upload(upload, judgement)
                await self._tasks.keep(taken)

    async def _tell_of_unknown(self, taken: Taken) -> None:
        """Look through all objects of the cluster but those in the shards of segments, which are other chores'."""
        first = f"{segments_prefix(NO_PREFIX, self._cluster)}{0:03}/"
        last = f"{segments_prefix(NO_PREFIX, self._cluster)}{SHARDS - 1:03}/{LAST_NAME}"
        unknown = 0
        page = await self._store.list(self._prefix)
        while page:
            for info in page:
                if not first <= info.key <= last and not is_known_key(info.key, self._cluster):
                    unknown += 1
                    if unknown <= TOLD_MAX:
                        log.warning("object_unknown", key=info.key, bytes=info.size_bytes)
            if len(page) < LIST_LIMIT_MAX:
                break
            await self._tasks.keep(taken)
            after = page[-1].key
            page = await self._store.list(self._prefix, after if after < first else max(after, last))
        self._metrics.unknown_objects.labels("elsewhere").set(unknown)


def is_known_key(key: str, cluster: str) -> bool:
    """Whether an object of the cluster may have this key."""
    if key == marker_key(cluster):
        return True
    for parse in (parse_segment_key, parse_snapshot_key, parse_journal_archive_key):
        try:
            parse(key)
        except Invalid:
            continue
        return True
    return False
