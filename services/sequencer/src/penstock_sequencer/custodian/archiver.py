"""The custodian's archive: new journal entries go to the object store every few seconds, in pieces without a gap.

It goes on where the archive ends, so the objects themselves are the truth and what is noted in the journal follows. A
piece that is stored twice, under one key or overlapping another, does no harm.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable

import msgspec
import structlog

from penstock.contracts.commands import HOUSEKEEPING
from penstock.contracts.entries import decode_entry, next_hash
from penstock.contracts.errors import Corrupt, Invalid, PenstockError, Unavailable
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal, JournalEntry, JournalInfo, JournalLost
from penstock.runtime.nats.loss import LossDetector
from penstock.runtime.process.health import Health
from penstock.segment.keys import journal_archive_key, journal_archive_prefix, parse_journal_archive_key
from penstock_sequencer.custodian.custody import Custody
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import REMEDY, Halted
from penstock_sequencer.replication.hash_chain import Chain
from penstock_sequencer.storage.archive_format import (
    ENTRIES_BYTES_MAX,
    Archive,
    decode_archive,
    encode_archive,
    hash_after,
)

INTERVAL_S = 5.0  # what a lost journal costs
IDLE_INTERVAL_S = 60.0  # for entries that only tell that time passes
RETRY_S = 5.0
LOSS_LOOK_S = 0.5
BACKLOG_BYTES_MAX = 2 * ENTRIES_BYTES_MAX  # read and not stored yet; then reading waits
ENTRY_OVERHEAD_BYTES = 100  # of a tiny entry in memory
OBJECTS_TRIED_MAX = 5  # from the archive's end backwards, for one that is whole
NO_PREFIX = ""
DEGRADED = "archive"

log = structlog.get_logger()


class Place(msgspec.Struct, frozen=True):
    """A place in the journal: after an entry, with the running hash there."""

    sequence: int
    hash: bytes


async def list_archive(store: ObjectStore, cluster: str) -> list[tuple[int, int]]:
    """(First, last) sequence of every archive object, ascending; what else lies there is passed over."""
    spans = []
    prefix = journal_archive_prefix(NO_PREFIX, cluster)
    after = ""
    while page := await store.list(prefix, after):
        for info in page:
            with contextlib.suppress(Invalid):
                spans.append(parse_journal_archive_key(info.key))
        after = page[-1].key
    return sorted(spans)


async def read_archive(store: ObjectStore, cluster: str, first: int, last: int) -> Archive:
    """One object of the archive; `Corrupt` if it is not what its key says, `NotFound` if there is none."""
    key = journal_archive_key(NO_PREFIX, cluster, first, last)
    try:
        archive = decode_archive(await store.get(key))
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}") from error
    if (archive.first, archive.last) != (first, last):
        raise Corrupt(f"{key} holds entries {archive.first} to {archive.last}")
    return archive


async def check_journal_has_what_is_archived(journal: Journal, store: ObjectStore, cluster: str) -> None:
    """`Halted` if the archive goes on where the journal ends: the journal lost what it had acknowledged.

    A server of a cluster that has just woken may not know better, so there it has to say so for a while.
    """
    archived = max((last for _, last in await list_archive(store, cluster)), default=0)
    info = await journal.describe()
    detector = LossDetector(lambda: info.replicas > 1)
    while True:
        try:
            with detector.observe():
                _check_reaches(info, archived, cluster)
            return
        except JournalLost as loss:
            raise Halted(f"the sequencer halted: {loss}. {REMEDY}") from loss
        except Unavailable:
            await asyncio.sleep(LOSS_LOOK_S)
        with contextlib.suppress(Unavailable):  # then the last answer stands a little longer
            info = await journal.describe()


def _check_reaches(info: JournalInfo, archived: int, cluster: str) -> None:
    if info.last_sequence < archived:
        raise JournalLost(
            f"the journal of cluster {cluster} ends at entry {info.last_sequence}, but entry {archived} is in its "
            "archive already"
        )


class Backlog:
    """Entries that were read from the journal and are not in the archive yet."""

    def __init__(self, place: Place) -> None:
        self.has_news = False  # whether there is anything but housekeeping
        self.size_bytes = 0
        self._place = place  # before the first entry
        self._entries: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def sequence(self) -> int:
        """Of the newest entry that is here or in the archive."""
        return self._place.sequence + len(self._entries)

    def add(self, item: JournalEntry) -> None:
        """The next entry; `Corrupt` if it is not."""
        due = self.sequence + 1
        if item.sequence != due:
            raise Corrupt(f"entry {item.sequence} came when {due} was due for the archive")
        self._entries.append(item.data)
        self.size_bytes += _size_bytes(item.data)
        self.has_news = self.has_news or _is_news(item.data)

    def fragment(self) -> Archive:
        """The oldest entries, as many as go into one object; they stay until `drop`."""
        taken: list[bytes] = []
        size_bytes = 0
        for data in self._entries:
            size_bytes += _size_bytes(data)
            if taken and size_bytes > ENTRIES_BYTES_MAX:
                break
            taken.append(data)
        return Archive(self._place.sequence + 1, self._place.hash, taken)

    def drop(self, fragment: Archive) -> None:
        """The piece, which was the newest answer of `fragment`, is in the archive."""
        running = fragment.hash_before
        for data in fragment.entries:
            self._entries.popleft()
            self.size_bytes -= _size_bytes(data)
            running = next_hash(running, data)
        self._place = Place(fragment.last, running)
        if not self._entries:
            self.has_news = False


class Archiving:
    """The custodian's worker."""

    def __init__(
        self,
        journal: Journal,
        store: ObjectStore,
        cluster: str,
        chain: Chain,
        custody: Custody,
        clock: Clock,
        metrics: SequencerMetrics,
        health: Health,
    ) -> None:
        self._journal = journal
        self._store = store
        self._cluster = cluster
        self._chain = chain
        self._custody = custody
        self._clock = clock
        self._metrics = metrics
        self._health = health
        self._noted = 0  # the highest sequence that we noted in the journal
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Archive until cancelled; what goes wrong is tried again, and if it is the journal, the replica halts."""
        try:
            while True:
                try:
                    await self._archive(Backlog(await self._find_place()))
                except* PenstockError as errors:  # also `Invalid`: what a store refuses today it may take tomorrow
                    self._tell_failure(errors.exceptions[0])
                await asyncio.sleep(RETRY_S)
        finally:
            self._health.set_degraded(DEGRADED, "")  # it is the next custodian's now

    def _tell_failure(self, error: Exception) -> None:
        self._metrics.archive_failures.inc()
        self._health.set_degraded(DEGRADED, f"the journal is not archived: {error}")
        log.warning("archive_waits", error=str(error))

    async def _archive(self, backlog: Backlog) -> None:
        if not await self._note(backlog.sequence):
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
                while backlog.size_bytes >= BACKLOG_BYTES_MAX:
                    await self._until_changed()
        finally:
            if isinstance(tail, AsyncGenerator):
                await tail.aclose()

    async def _write(self, backlog: Backlog) -> None:
        """Store what comes; returns when custody is lost."""
        written_s = self._clock.monotonic_s()
        while True:
            await self._until(lambda: backlog.size_bytes >= ENTRIES_BYTES_MAX, INTERVAL_S)
            idle_s = self._clock.monotonic_s() - written_s
            is_due = backlog.has_news or idle_s >= IDLE_INTERVAL_S or backlog.size_bytes >= ENTRIES_BYTES_MAX
            if not len(backlog) or not is_due:
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
            if not await self._note(archived):
                return

    async def _note(self, archived: int) -> bool:
        """Tell all replicas how far the archive reaches; false if we are not custodian."""
        if archived > self._noted:
            if not await self._custody.record_archived(archived):
                return False
            self._noted = archived
            self._metrics.archived_sequence.set(archived)
        return True

    async def _store_fragment(self, fragment: Archive) -> None:
        key = journal_archive_key(NO_PREFIX, self._cluster, fragment.first, fragment.last)
        data = encode_archive(fragment)
        try:
            await self._store.put(key, [data])
        except AlreadyExists:  # the same entries, by another custodian or by a put in doubt
            await self._check_stored(key, fragment, data)
        self._health.set_degraded(DEGRADED, "")
        self._custody.made_progress()
        self._metrics.archive_bytes.inc(len(data))

    async def _check_stored(self, key: str, fragment: Archive, data: bytes) -> None:
        """See that the object holds the piece, and put it in the place of a damaged one."""
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
        """Where the archive ends; or, if that cannot be gone on from, the earliest place that we know the hash of."""
        first_sequence = (await self._journal.describe()).first_sequence
        spans = sorted(await list_archive(self._store, self._cluster), key=lambda span: span[1], reverse=True)
        for first, last in spans[:OBJECTS_TRIED_MAX]:
            if last + 1 < first_sequence:
                break
            try:
                archive = await read_archive(self._store, self._cluster, first, last)
            except (Corrupt, NotFound) as error:
                log.error("archive_object_passed_over", error=str(error))
                continue
            place = Place(last, hash_after(archive, last))
            if self._chain.hash_at(last) in (None, place.hash):
                return place
            log.error("archive_object_passed_over", error=f"entries {first} to {last} are of another journal")
        return self._earliest(first_sequence)

    def _earliest(self, first_sequence: int) -> Place:
        sequence = max(self._chain.earliest_sequence, first_sequence - 1)
        known = self._chain.hash_at(sequence)
        if known is None:
            raise Unavailable(f"the hash of journal entry {sequence} is not known yet")
        if sequence:
            log.warning("archive_begins_anew", after=sequence)
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


def _size_bytes(data: bytes) -> int:
    return len(data) + ENTRY_OVERHEAD_BYTES


def _is_news(data: bytes) -> bool:
    return any(not isinstance(command, HOUSEKEEPING) for request in decode_entry(data).requests for command in request)
