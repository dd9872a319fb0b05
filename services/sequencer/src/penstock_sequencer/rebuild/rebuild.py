"""A rebuild from start to end, over a store and a NATS server."""

from collections.abc import Callable
from typing import Protocol

from penstock.contracts.errors import Corrupt, Invalid
from penstock.objectstore import NotFound, ObjectStore
from penstock.runtime.clock import Entropy
from penstock.runtime.journal import Journal
from penstock_sequencer.rebuild.footers import read_lost_segments
from penstock_sequencer.rebuild.lost_landing import replace_lost_extents
from penstock_sequencer.rebuild.new_journal import (
    SEQUENCES_SKIPPED,
    put_first_entry,
    start_journal,
    store_snapshot,
)
from penstock_sequencer.rebuild.preconditions import ARCHIVE_AGE_MIN_MS, check_archive_is_silent, check_is_lost
from penstock_sequencer.rebuild.recover import commit_lost_segments
from penstock_sequencer.rebuild.replay import JournalState, replay_archive
from penstock_sequencer.rebuild.report import Report
from penstock_sequencer.storage.archive_store import list_archive
from penstock_sequencer.storage.journal_marker import Marker, name_in_marker, read_marker
from penstock_sequencer.storage.journal_stream import FoundStream
from penstock_sequencer.storage.snapshot_format import UnknownVersion
from penstock_sequencer.storage.snapshot_store import list_snapshots, read_stored_snapshot


class Streams(Protocol):
    """Finds and makes the journal's stream; the real one is `NatsStreams`."""

    async def find(self) -> FoundStream | None: ...

    async def make(self, first_sequence: int, replicas: int) -> FoundStream: ...

    async def journal(self) -> Journal:
        """The journal in the existing stream."""


class Rebuild:
    """One run for one cluster; `report` has its results, even after a failure."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        streams: Streams,
        cluster: str,
        now_ms: Callable[[], int],
        entropy: Entropy,
        has_landing: bool = False,
        replicas: int = 1,
        archive_age_min_ms: int = ARCHIVE_AGE_MIN_MS,
    ) -> None:
        """`has_landing`: whether `store` has a landing store."""
        self.report = Report(cluster=cluster)
        self._store = store
        self._streams = streams
        self._cluster = cluster
        self._now_ms = now_ms
        self._entropy = entropy
        self._has_landing = has_landing
        self._replicas = replicas
        self._archive_age_min_ms = archive_age_min_ms

    async def run(self, *, is_dry_run: bool = False) -> None:
        """Rebuild the journal, or only report; `Invalid` with the reason if that is not allowed or not possible."""
        self.report.is_dry_run = is_dry_run
        marker = await read_marker(self._store, self._cluster)
        earlier = check_is_lost(self._cluster, marker, await self._streams.find())
        ours = earlier.first_sequence if earlier is not None else None
        await check_archive_is_silent(self._store, self._cluster, self._now_ms, self._archive_age_min_ms, ours)
        first_sequence = earlier.first_sequence if earlier is not None else await self._next_first_sequence()
        self.report.first_sequence = first_sequence
        state = await self._finished_part(first_sequence) if earlier is not None else None
        if state is None:
            state = start_journal(await self._recover(is_dry_run=is_dry_run), first_sequence)
        if not is_dry_run:
            await self._make(marker, earlier, state)

    async def _next_first_sequence(self) -> int:
        """A sequence far after every sequence that the old journal can have used."""
        seen = [last for _, last in await list_archive(self._store, self._cluster)]
        seen += await list_snapshots(self._store, self._cluster)
        return max(seen, default=0) + SEQUENCES_SKIPPED

    async def _finished_part(self, first_sequence: int) -> JournalState | None:
        """The state in the snapshot before the first entry, if an earlier rebuild stored one."""
        try:
            snapshot = await read_stored_snapshot(self._store, self._cluster, first_sequence - 1)
        except NotFound:
            return None
        except UnknownVersion as error:
            raise _too_new(error) from error
        except Corrupt as error:
            raise Invalid(f"an earlier rebuild left a snapshot that cannot be read; delete it: {error}") from error
        self.report.snapshot_sequence = self.report.archived_sequence = snapshot.state.sequence
        return JournalState(snapshot.state, snapshot.hashes[-1])

    async def _recover(self, *, is_dry_run: bool) -> JournalState:
        try:
            known = await replay_archive(self._store, self._cluster, self.report)
        except UnknownVersion as error:
            raise _too_new(error) from error
        # If this machine's clock is behind the cluster's, the cluster's is used: it cannot be turned back.
        now_ms = max(self._now_ms(), known.state.clock_ms)
        indexes = await read_lost_segments(self._store, self._cluster, known.state, now_ms, self.report)
        commit_lost_segments(known.state, indexes, now_ms, self.report)
        await replace_lost_extents(
            self._store,
            self._cluster,
            known.state,
            self.report,
            entropy=self._entropy,
            has_landing=self._has_landing,
            is_dry_run=is_dry_run,
        )
        return known

    async def _make(self, marker: Marker | None, earlier: FoundStream | None, state: JournalState) -> None:
        """The four steps of new_journal.py."""
        stream = earlier or await self._streams.make(self.report.first_sequence, self._replicas)
        if stream.first_sequence != self.report.first_sequence:
            raise Invalid("another rebuild is running; wait until it ends")
        await store_snapshot(self._store, self._cluster, state, [state.hash])
        await put_first_entry(self._store, self._cluster, await self._streams.journal(), state)
        await name_in_marker(self._store, self._cluster, marker, stream.created)
        self.report.journal_created = stream.created


def _too_new(error: UnknownVersion) -> Invalid:
    return Invalid(f"{error}. Nothing was changed. Rebuild with the release that wrote it, or a newer one")
