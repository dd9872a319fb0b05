"""Archives the journal: the custodian stores new entries every few seconds, in fragments without a gap.

A new custodian continues at the archive's end. The stored objects decide where that is; the sequence recorded in the
journal follows them. A fragment that is stored twice, under one key or overlapping another, does no harm.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import structlog

from penstock.contracts.errors import Corrupt, PenstockError, Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal
from penstock.runtime.nats.cancellation import honest_cancellation
from penstock.runtime.process.health import Health
from penstock.segment.keys import journal_archive_key
from penstock_sequencer.custodian.backlog import ARCHIVE_LIMITS, ArchiveLimits, Backlog, Place
from penstock_sequencer.custodian.custody import Custody
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.storage.archive_format import Archive, encode_archive, hash_after
from penstock_sequencer.storage.archive_store import list_archive, read_archive
from penstock_sequencer.storage.snapshot_store import NO_PREFIX

DEGRADED = "archive"

log = structlog.get_logger()


class Archiver:
    """The custodian's worker that archives."""

    def __init__(
        self,
        *,
        journal: Journal,
        store: ObjectStore,
        cluster: str,
        chain: HashChain,
        custody: Custody,
        clock: Clock,
        metrics: SequencerMetrics,
        health: Health,
        known_level: int = NEWEST_LEVEL,
        limits: ArchiveLimits = ARCHIVE_LIMITS,
    ) -> None:
        self._journal = journal
        self._store = store
        self._cluster = cluster
        self._chain = chain
        self._custody = custody
        self._clock = clock
        self._metrics = metrics
        self._health = health
        self._known_level = known_level
        self._limits = limits
        self._recorded = 0  # the highest sequence that this replica recorded in the journal
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Archive until cancelled; failures are retried. If the journal fails, the replica halts by itself."""
        try:
            while True:
                with honest_cancellation():  # a task group that is failing swallows a cancellation
                    await self._archive_until_failure()
                await asyncio.sleep(self._limits.retry_s)
        finally:
            self._health.set_degraded(DEGRADED, "")  # archiving is the next custodian's work now

    async def _archive_until_failure(self) -> None:
        """Archive until a failure, which is reported, or until custody is lost."""
        try:
            place = await self._find_place()
            await self._archive(Backlog(place, limits=self._limits, known_level=self._known_level))
        except* PenstockError as errors:  # also `Invalid`: a store may accept later what it rejects now
            self._report_failure(errors.exceptions[0])

    def _report_failure(self, error: Exception) -> None:
        self._metrics.archive_failures.inc()
        self._health.set_degraded(DEGRADED, f"the journal is not archived: {error}")
        log.warning("archive_not_written", error=str(error))

    async def _archive(self, backlog: Backlog) -> None:
        if not await self._record(backlog.sequence):
            return
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(backlog))
            await self._write(backlog)
            reading.cancel()

    async def _read(self, backlog: Backlog) -> None:
        tail = self._journal.tail(backlog.sequence)
        try:
            async for group in tail:
                for item in group:
                    backlog.add(item)
                self._changed.set()
                while backlog.is_full:
                    await self._until_changed()
        finally:
            if isinstance(tail, AsyncGenerator):
                await tail.aclose()

    async def _write(self, backlog: Backlog) -> None:
        """Store new entries; returns when custody is lost."""
        written_s = self._clock.monotonic_s()
        while True:
            await self._until(lambda: backlog.is_object_full, self._limits.interval_s)
            if not backlog.is_due(self._clock.monotonic_s() - written_s):
                continue
            written_s = self._clock.monotonic_s()
            archived = 0
            while len(backlog):
                if not self._custody.is_ours:
                    return
                fragment = backlog.fragment()
                await self._store_fragment(fragment)
                backlog.drop(fragment)
                self._changed.set()
                archived = fragment.last
            if not await self._record(archived):
                return

    async def _record(self, archived: int) -> bool:
        """Record in the journal how far the archive reaches; false if this replica is not custodian."""
        if archived > self._recorded:
            if not await self._custody.record_archived(archived):
                return False
            self._recorded = archived
            self._metrics.archived_sequence.set(archived)
        return True

    async def _store_fragment(self, fragment: Archive) -> None:
        key = journal_archive_key(NO_PREFIX, self._cluster, fragment.first, fragment.last)
        data = encode_archive(fragment)
        try:
            await self._store.put(key, [data])
        except AlreadyExists:  # the same entries, stored by another custodian or by a put in doubt
            await self._check_stored(key, fragment, data)
        self._health.set_degraded(DEGRADED, "")
        self._custody.made_progress()
        self._metrics.archive_bytes.inc(len(data))

    async def _check_stored(self, key: str, fragment: Archive, data: bytes) -> None:
        """Check that the object holds the fragment; replace a damaged object."""
        try:
            stored = await read_archive(self._store, self._cluster, fragment.first, fragment.last)
        except Corrupt as error:
            log.error("archive_object_replaced", error=str(error))
            for info in await self._store.list(key, limit=1):
                await self._store.put(key, [data], if_match=info.etag)
            stored = await read_archive(self._store, self._cluster, fragment.first, fragment.last)
        if stored != fragment:
            raise Corrupt(f"{key} holds the entries of another journal")

    async def _find_place(self) -> Place:
        """The archive's end; if archiving cannot continue there, the earliest place whose hash is known."""
        first_sequence = (await self._journal.describe()).first_sequence
        spans = sorted(await list_archive(self._store, self._cluster), key=lambda span: span[1], reverse=True)
        for first, last in spans[: self._limits.objects_tried_max]:
            if last + 1 < first_sequence:
                break
            try:
                archive = await read_archive(self._store, self._cluster, first, last)
            except (Corrupt, NotFound) as error:
                log.error("archive_object_skipped", error=str(error))
                continue
            place = Place(last, hash_after(archive, last))
            if self._chain.hash_at(last) in (None, place.hash):
                return place
            log.error("archive_object_skipped", error=f"entries {first} to {last} are of another journal")
        return self._earliest(first_sequence)

    def _earliest(self, first_sequence: int) -> Place:
        sequence = max(self._chain.earliest_sequence, first_sequence - 1)
        known = self._chain.hash_at(sequence)
        if known is None:
            raise Unavailable(f"the hash of journal entry {sequence} is not known yet")
        if sequence:
            log.warning("archive_has_gap", archived_after=sequence)
        return Place(sequence, known)

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Return when the condition holds, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self._until_changed()

    async def _until_changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()
