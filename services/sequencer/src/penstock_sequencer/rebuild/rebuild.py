"""A rebuild from its beginning to its end, over a store and a NATS server."""

from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.errors import Corrupt, Invalid
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import NotFound, ObjectStore
from penstock.runtime.journal import Journal
from penstock_sequencer.custodian.archiver import list_archive
from penstock_sequencer.journal_guard.identity import JournalIdentity, Marker, marker_key, read_marker
from penstock_sequencer.rebuild.footers import read_lost_segments
from penstock_sequencer.rebuild.liveness import ARCHIVE_AGE_MIN_MS, check_is_silent
from penstock_sequencer.rebuild.new_journal import (
    SEQUENCES_SKIPPED,
    begin_anew,
    name_in_marker,
    put_first_entry,
    store_snapshot,
)
from penstock_sequencer.rebuild.past import Past, read_past
from penstock_sequencer.rebuild.recover import commit_lost_segments
from penstock_sequencer.rebuild.report import Report
from penstock_sequencer.rebuild.stream import FoundStream
from penstock_sequencer.storage.snapshot_store import list_snapshots, read_stored_snapshot

log = structlog.get_logger()


class Streams(Protocol):
    """Where the journal's stream is looked for and made; `sequencer.rebuild.stream` has the real one."""

    async def find(self) -> FoundStream | None: ...

    async def make(self, first_sequence: int, replicas: int) -> FoundStream: ...

    async def journal(self) -> Journal:
        """The journal in the stream that is there."""


class Rebuild:
    """One run for one cluster; `report` tells what came of it, also of a run that failed."""

    def __init__(
        self,
        store: ObjectStore,
        streams: Streams,
        cluster: str,
        now_ms: Callable[[], int],
        *,
        replicas: int = 1,
        archive_age_min_ms: int = ARCHIVE_AGE_MIN_MS,
    ) -> None:
        self.report = Report(cluster=cluster)
        self._store = store
        self._streams = streams
        self._cluster = cluster
        self._now_ms = now_ms
        self._replicas = replicas
        self._archive_age_min_ms = archive_age_min_ms

    async def run(self, *, is_dry_run: bool = False) -> None:
        """Rebuild the journal, or only report; `Invalid` with one sentence if that must not or cannot be."""
        self.report.is_dry_run = is_dry_run
        marker = await read_marker(self._store, self._cluster)
        begun = await self._check_is_lost(marker)
        ours = begun.first_sequence if begun is not None else None
        await check_is_silent(self._store, self._cluster, self._now_ms, self._archive_age_min_ms, ours)
        first_sequence = begun.first_sequence if begun is not None else await self._next_first_sequence()
        self.report.first_sequence = first_sequence
        past = await self._finished_part(first_sequence) if begun is not None else None
        if past is None:
            past = begin_anew(await self._recover(), first_sequence)
        if not is_dry_run:
            await self._make(marker, begun, past)

    async def _check_is_lost(self, marker: Marker | None) -> FoundStream | None:
        """`Invalid` if the journal is there; the stream that a rebuild before has begun with, if there is one."""
        found = await self._streams.find()
        if found is None:
            return None
        if marker is not None and found.created == marker.identity.created:
            raise Invalid(
                f"the journal of cluster {self._cluster}, made at {found.created}, is there; nothing was changed. If "
                f"it is damaged and cannot be mended, back its stream up, remove it, and rebuild then"
            )
        if not found.is_rebuilt:
            raise Invalid(
                f"a stream made at {found.created} has the name of the journal of cluster {self._cluster} and is not "
                f"the one that the store knows; nothing was changed. Remove it if nobody needs it, and rebuild then"
            )
        if found.last_sequence > found.first_sequence:
            raise self._in_use(found)
        log.info("rebuild_goes_on", first_sequence=found.first_sequence)
        return found

    def _in_use(self, found: FoundStream) -> Invalid:
        identity = JournalIdentity(journal_stream(self._cluster), found.created)
        return Invalid(
            f"the stream made at {found.created} by a rebuild was in use since, up to entry {found.last_sequence}: it "
            f"is the journal of cluster {self._cluster}, but the object {marker_key(self._cluster)} does not name it; "
            f"nothing was changed. If nothing else is missing in the store, put that object there again: "
            f"{msgspec.json.encode(identity).decode()}"
        )

    async def _next_first_sequence(self) -> int:
        """Far behind whatever the old journal can have given out."""
        seen = [last for _, last in await list_archive(self._store, self._cluster)]
        seen += await list_snapshots(self._store, self._cluster)
        return max(seen, default=0) + SEQUENCES_SKIPPED

    async def _finished_part(self, first_sequence: int) -> Past | None:
        """What the snapshot before the first entry holds, if a rebuild before came so far."""
        try:
            snapshot = await read_stored_snapshot(self._store, self._cluster, first_sequence - 1)
        except NotFound:
            return None
        except Corrupt as error:
            raise Invalid(f"a rebuild before left a snapshot that cannot be read; delete it: {error}") from error
        self.report.snapshot_sequence = self.report.archived_sequence = snapshot.state.sequence
        return Past(snapshot.state, snapshot.hashes[-1])

    async def _recover(self) -> Past:
        past = await read_past(self._store, self._cluster, self.report)
        # If this machine's clock is behind the cluster's, that one is right: it cannot be turned back.
        now_ms = max(self._now_ms(), past.state.clock_ms)
        indexes = await read_lost_segments(self._store, self._cluster, past.state, now_ms, self.report)
        commit_lost_segments(past.state, indexes, now_ms, self.report)
        return past

    async def _make(self, marker: Marker | None, begun: FoundStream | None, past: Past) -> None:
        """The four steps of new_journal.py."""
        stream = begun or await self._streams.make(self.report.first_sequence, self._replicas)
        if stream.first_sequence != self.report.first_sequence:
            raise Invalid("another rebuild is at work; let it end")
        await store_snapshot(self._store, self._cluster, past, [past.hash])
        await put_first_entry(self._store, self._cluster, await self._streams.journal(), past)
        await name_in_marker(self._store, self._cluster, marker, stream.created)
        self.report.journal_created = stream.created
