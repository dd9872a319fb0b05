"""Removes deleted clusters when their undelete window is over: journal, landing stream, all objects, then the name.

Each step can be repeated, and a crash between two steps loses nothing but time:

1. `deleted`: the window is over by two clocks, this machine's and the store's, and no sequencer serves the cluster.
   Then the record becomes `emptying`. From here on the cluster cannot come back.
2. `emptying`: the journal's stream goes first, so that a process which missed the deletion cannot acknowledge anything.
   Then all objects go.
3. Nothing is left: `emptied_ms` is recorded. Late uploads are still deleted. They start the rest anew.
4. One process has known for `rest_ms` that nothing was found: the record becomes `gone`, and the name is free. The
   process counts by its monotonic clock. With a wrong wall clock the rest would end early, or not for days.

The rest protects a new cluster of the same name from a janitor that was stopped during a step. A janitor also checks
the record before each deletion. It deletes only objects that it listed before that check.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from penstock.clusters.record import ClusterQuotas, ClusterRecord, ClusterState
from penstock.clusters.registry import ClusterRegistry, Registered
from penstock.clusters.watch import ClusterWatch
from penstock.contracts import codec, subjects
from penstock.contracts.errors import Conflict, PenstockError, Unavailable, Undelivered
from penstock.contracts.queries.janitor import JournalQuery
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.process.host import Connection
from penstock.segment.keys import cleanup_key, cluster_prefix

log = structlog.get_logger()


class CleanupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The times and sizes of cleanups."""

    interval_s: float = 60.0  # between two looks at the deleted clusters
    rest_ms: int = 3_600_000  # as the age of orphans: no upload and no request of a janitor takes so long
    page_objects: int = 1_000
    answer_timeout_s: float = 2.0
    check_life_s: float = 30.0  # a deletion begins at most this long after the check of the record


DEFAULT_LIMITS = CleanupLimits()


class Changed(Exception):
    """The record is not the one that this cleanup began with: it stops."""


class Cleanup:
    """The cleanups of one janitor process, one cluster after the other."""

    def __init__(
        self,
        *,
        watch: ClusterWatch,
        store: ObjectStore,
        connection: Connection,
        clock: Clock,
        entropy: Entropy,
        set_degraded: Callable[[str, str], None],
        address: str,
        has_own_landing: bool,
        is_wanted: Callable[[str], bool],
        dry_run: bool = False,
        open_store: Callable[..., Awaitable[ObjectStore]] = open_store,
        limits: CleanupLimits = DEFAULT_LIMITS,
    ) -> None:
        """`address` is that of the store, with the landing store unless each cluster has a stream of its own."""
        self._watch = watch
        self._store = store
        self._registry = ClusterRegistry(store)
        self._connection = connection
        self._clock = clock
        self._entropy = entropy
        self._set_degraded = set_degraded
        self._address = address
        self._has_own_landing = has_own_landing
        self._is_wanted = is_wanted
        self._dry_run = dry_run
        self._open_store = open_store
        self._limits = limits
        # By name: the record of an emptied cluster, and the monotonic time since which this process has known it.
        self._rests: dict[str, tuple[ClusterRecord, float]] = {}

    async def run(self) -> None:
        """Clean up until cancelled. A failure is reported, and tried again."""
        while True:
            await self.clean_all()
            await asyncio.sleep(self._limits.interval_s)

    async def clean_all(self) -> None:
        """One step for each deleted cluster."""
        problem = ""
        for name, record in sorted(self._watch.records.items()):
            if record.state not in (ClusterState.DELETED, ClusterState.EMPTYING) or not self._is_wanted(name):
                continue
            try:
                await self.clean(name)
            except (Conflict, Changed):
                log.info("cleanup_overtaken", cluster=name)
            except PenstockError as error:
                problem = f"the deleted cluster {name} is not cleaned up: {error}"
                log.warning("cleanup_failed", cluster=name, error=str(error))
        self._set_degraded("cleanup", problem)

    async def clean(self, name: str) -> None:
        """The next step for one cluster, if it is due. `Conflict` or `Changed` if another process was faster."""
        found = await self._registry.find(name)
        if found is None:
            return
        if found.record.state == ClusterState.DELETED and await self._is_due(found.record):
            if self._dry_run:
                log.info("cluster_would_be_emptied", cluster=name)
                return
            emptying = msgspec.structs.replace(found.record, state=ClusterState.EMPTYING)
            found = await self._registry.replace(found, emptying)
            log.info("cluster_emptying", cluster=name, deleted_ms=found.record.deleted_ms)
        if found.record.state == ClusterState.EMPTYING and not self._dry_run:
            await self._empty(found)

    async def _is_due(self, record: ClusterRecord) -> bool:
        """Whether the window is over by both clocks, and no process serves the cluster."""
        if self._clock.now_ms() < record.undelete_until_ms:
            return False
        version = await self._registry.version(record.name)
        window_ms = record.undelete_until_ms - record.deleted_ms
        if version is None or await self._store_now_ms(record.name) - version.modified_ms < window_ms:
            log.warning("cleanup_waits_for_the_clock_of_the_store", cluster=record.name)
            return False
        if await self._is_served(record.name):
            raise Unavailable("a sequencer still serves it; stop the sequencers that are started for it by name")
        return True

    async def _store_now_ms(self, name: str) -> int:
        """The time of the store's clock: the time of an object that was written now. It is below the cluster's prefix.

        So the cleanup deletes it, if this process dies before it does. If the cluster comes back, its janitor does.
        """
        key = cleanup_key("", name, self._entropy.take(8).hex())
        await self._store.put(key, [b"the time of the store"])
        listed = await self._store.list(key, limit=1)
        await self._store.delete([key])
        return listed[0].modified_ms if listed else 0

    async def _is_served(self, name: str) -> bool:
        query = codec.encode(JournalQuery(0))
        try:
            subject = subjects.sequencer_query(name, "journal")
            await self._connection.bus.request(subject, query, self._limits.answer_timeout_s)
        except Undelivered:
            return False
        except Unavailable:
            return True  # it received the question
        return True

    async def _empty(self, found: Registered) -> None:
        record = found.record
        await self._delete_streams(record)
        store = await self._open_store(self._address)
        try:
            count = await self._delete_objects(store, record)
        finally:
            await store.close()
        if count and record.emptied_ms:
            await self._registry.replace(found, msgspec.structs.replace(record, emptied_ms=0))
        elif not count and not record.emptied_ms:
            emptied = msgspec.structs.replace(record, emptied_ms=self._clock.now_ms())
            self._rested_s((await self._registry.replace(found, emptied)).record)
        elif not count and self._rested_s(record) * 1000 >= self._limits.rest_ms:
            gone = ClusterRecord(
                name=record.name,
                created_id=record.created_id,
                created_ms=record.created_ms,
                state=ClusterState.GONE,
                deleted_ms=record.deleted_ms,
                emptied_ms=record.emptied_ms,
                quotas=ClusterQuotas(),
            )
            await self._registry.replace(found, gone)
            self._rests.pop(record.name, None)
            log.info("cluster_gone", cluster=record.name)

    def _rested_s(self, record: ClusterRecord) -> float:
        """For how long this process has known the record. Each find of an object changes the record."""
        now_s = self._clock.monotonic_s()
        known, since_s = self._rests.get(record.name, (None, now_s))
        if known != record:
            self._rests[record.name] = record, now_s
            return 0.0
        return now_s - since_s

    async def _delete_streams(self, record: ClusterRecord) -> None:
        names = [subjects.journal_stream(record.name)]
        if self._has_own_landing:
            names.append(subjects.landing_stream(record.name))
        for name in names:
            self._check_age(await self._check(record))
            await self._connection.delete_stream(name)

    async def _delete_objects(self, store: ObjectStore, record: ClusterRecord) -> int:
        """Delete all objects and unfinished uploads of the cluster; return how many there were."""
        prefix, count = cluster_prefix("", record.name), 0
        while True:
            page = await store.list(prefix, limit=self._limits.page_objects)
            uploads = await store.unfinished(prefix)
            if not page and not uploads:
                return count
            checked_s = await self._check(record)
            for upload in uploads:
                self._check_age(checked_s)
                await store.abort_unfinished(upload)
            if page:
                self._check_age(checked_s)
                await store.delete([info.key for info in page])
            count += len(page) + len(uploads)

    async def _check(self, record: ClusterRecord) -> float:
        """The monotonic time before the check that the record did not change since; `Changed` if it did."""
        checked_s = self._clock.monotonic_s()
        found = await self._registry.find(record.name)
        if found is None or found.record != record:
            raise Changed(record.name)
        return checked_s

    def _check_age(self, checked_s: float) -> None:
        """`Changed` if the check is old, because this process was stopped since; the next round checks again."""
        if self._clock.monotonic_s() - checked_s > self._limits.check_life_s:
            raise Changed("the check of the record is too old")
