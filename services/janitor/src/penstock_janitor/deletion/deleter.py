"""Deletes objects that are classified as deletable: one log line each, with the reason. A dry run only logs."""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId
from penstock.objectstore import NotDeleted, ObjectStore, Unfinished
from penstock.objectstore.store import DELETE_KEYS_MAX
from penstock_janitor.metrics import JanitorMetrics
from penstock_janitor.rules.classification import Classification

DEGRADED = "deletion"
LOGGED_MAX = 100_000  # keys in memory, so that a dry run logs each of them once

log = structlog.get_logger()


class PendingDelete(msgspec.Struct, frozen=True):
    """An object to delete."""

    key: str
    size_bytes: int
    classification: Classification
    segment_id: SegmentId = b""


class Deleted(msgspec.Struct, frozen=True):
    """The objects that certainly do not exist any more. The other objects are deleted again later."""

    gone: list[PendingDelete]
    failure: Unavailable | None = None


class Deleter:
    """The only place that deletes objects; it classifies nothing.

    `set_degraded` gets the reason of a failure, and "" after a deletion without failures.
    """

    def __init__(
        self, *, store: ObjectStore, metrics: JanitorMetrics, set_degraded: Callable[[str, str], None], dry_run: bool
    ) -> None:
        self.dry_run = dry_run
        self._store = store
        self._metrics = metrics
        self._set_degraded = set_degraded
        self._logged: dict[str, None] = {}

    async def delete(self, pending: Sequence[PendingDelete]) -> Deleted:
        """Delete up to DELETE_KEYS_MAX objects in one request; a dry run deletes none."""
        assert len(pending) <= DELETE_KEYS_MAX, f"{len(pending)} objects at once"
        assert all(each.classification.is_deletable for each in pending), "an object is not deletable"
        if self.dry_run:
            self._log_dry_run(pending)
        if self.dry_run or not pending:
            return Deleted([])
        try:
            await self._store.delete([each.key for each in pending])
        except NotDeleted as error:
            left = set(error.keys)
            return self._record([each for each in pending if each.key not in left], error)
        except Unavailable as error:
            return self._record([], error)
        return self._record(list(pending), None)

    async def end_upload(self, upload: Unfinished, classification: Classification) -> None:
        """Abort an upload that is classified as deletable. The store does not report how many bytes it has."""
        assert classification.is_deletable, "the upload is not deletable"
        pending = PendingDelete(upload.key, 0, classification)
        if self.dry_run:
            self._log_dry_run([pending])
            return
        await self._store.abort_unfinished(upload)
        self._record([pending], None)

    def _record(self, gone: list[PendingDelete], failure: Unavailable | None) -> Deleted:
        self._set_degraded(DEGRADED, "" if failure is None else str(failure))
        for each in gone:
            state = each.classification.state
            log.info(
                "object_deleted", key=each.key, bytes=each.size_bytes, state=state, reason=each.classification.reason
            )
            self._metrics.deleted_objects.labels(state).inc()
            self._metrics.deleted_bytes.labels(state).inc(each.size_bytes)
        return Deleted(gone, failure)

    def _log_dry_run(self, pending: Sequence[PendingDelete]) -> None:
        for each in pending:
            if each.key in self._logged:
                continue
            if len(self._logged) >= LOGGED_MAX:
                self._logged.clear()
            self._logged[each.key] = None
            log.info(
                "object_would_be_deleted",
                key=each.key,
                bytes=each.size_bytes,
                state=each.classification.state,
                reason=each.classification.reason,
            )
