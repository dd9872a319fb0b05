"""Deletes objects that were judged to go: one log line each, with the reason; in a dry run the line is all."""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import SegmentId
from penstock.objectstore import NotDeleted, ObjectStore, Unfinished
from penstock.objectstore.store import DELETE_KEYS_MAX
from penstock_janitor.judge import Judgement
from penstock_janitor.metrics import JanitorMetrics

DEGRADED = "deletion"
TOLD_MAX = 100_000  # keys that a dry run does not tell of again

log = structlog.get_logger()


class PendingDelete(msgspec.Struct, frozen=True):
    """An object that is to go."""

    key: str
    size_bytes: int
    judgement: Judgement
    segment_id: SegmentId = b""


class Deleted(msgspec.Struct, frozen=True):
    """Those that are gone for certain; the others may be, and are tried again another time."""

    gone: list[PendingDelete]
    failure: Unavailable | None = None


class Deletion:
    """The only one here who deletes; it judges nothing. `tell` hears of failures until a deletion is done in full."""

    def __init__(
        self, store: ObjectStore, metrics: JanitorMetrics, tell: Callable[[str, str], None], *, dry_run: bool
    ) -> None:
        self.dry_run = dry_run
        self._store = store
        self._metrics = metrics
        self._tell_health = tell
        self._told: dict[str, None] = {}

    async def delete(self, pending_delete: Sequence[PendingDelete]) -> Deleted:
        """Delete up to DELETE_KEYS_MAX objects in one request; in a dry run none is gone."""
        assert len(pending_delete) <= DELETE_KEYS_MAX, f"{len(pending_delete)} objects at once"
        assert all(each.judgement.goes for each in pending_delete), "an object that stays"
        if self.dry_run:
            self._tell(pending_delete)
        if self.dry_run or not pending_delete:
            return Deleted([])
        try:
            await self._store.delete([each.key for each in pending_delete])
        except NotDeleted as error:
            left = set(error.keys)
            return self._note([each for each in pending_delete if each.key not in left], error)
        except Unavailable as error:
            return self._note([], error)
        return self._note(list(pending_delete), None)

    async def end_upload(self, upload: Unfinished, judgement: Judgement) -> None:
        """Give up an upload that was judged to go; what it has stored is not told."""
        assert judgement.goes, "an upload that stays"
        pending_delete = PendingDelete(upload.key, 0, judgement)
        if self.dry_run:
            self._tell([pending_delete])
            return
        await self._store.abort_unfinished(upload)
        self._note([pending_delete], None)

    def _note(self, gone: list[PendingDelete], failure: Unavailable | None) -> Deleted:
        self._tell_health(DEGRADED, "" if failure is None else str(failure))
        for each in gone:
            reason = each.judgement.verdict
            log.info(
                "object_deleted", key=each.key, bytes=each.size_bytes, verdict=reason, reason=each.judgement.reason
            )
            self._metrics.deleted_objects.labels(reason).inc()
            self._metrics.deleted_bytes.labels(reason).inc(each.size_bytes)
        return Deleted(gone, failure)

    def _tell(self, pending_delete: Sequence[PendingDelete]) -> None:
        for each in pending_delete:
            if each.key in self._told:
                continue
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told[each.key] = None
            log.info(
                "object_would_go",
                key=each.key,
                bytes=each.size_bytes,
                verdict=each.judgement.verdict,
                reason=each.judgement.reason,
            )
