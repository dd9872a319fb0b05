"""Moves the journal from one NATS deployment to another, with all entries and their sequences (ADR 0058).

The steps have this order. After a crash, the next run finds the steps that are done and continues:

 1. The stream is made at the new servers. Sequencers reject it: the marker names the old one.
 2. Entries and landing objects are copied while sequencers go on at the old servers.
 3. A mark is appended to the old journal. Replicas halt at it, so they acknowledge nothing after it.
 4. The entries before the mark and the rest of the landing objects are copied.
 5. The marker names the new stream. From here on sequencers start at the new servers.

Between 3 and 5 no sequencer serves anywhere. So two journals never accept entries at once.
"""

from collections.abc import Callable

import msgspec

from penstock.contracts.entries import MoveMark
from penstock.contracts.errors import Invalid
from penstock.objectstore import ObjectStore
from penstock.runtime.journal import Journal
from penstock_sequencer.journal_move.copying import COPY_LIMITS, CopyLimits, JournalCopy, has_mark
from penstock_sequencer.journal_move.landing import LandingCopy
from penstock_sequencer.storage.journal_marker import Marker, marker_key, name_in_marker, read_marker
from penstock_sequencer.storage.journal_stream import MADE_BY_MOVE, FoundStream, NatsStreams


class Place(msgspec.Struct, frozen=True):
    """NATS servers and the streams there; `servers` is their address without secrets."""

    servers: str
    streams: NatsStreams


class _Plan(msgspec.Struct, frozen=True):
    """The findings before the first change."""

    marker: Marker
    source: Journal
    found: FoundStream | None  # the stream at the new servers, if a move made it before
    old: FoundStream | None  # the stream there that was moved away before, and will be removed


class Move:
    """One run for one cluster."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster: str,
        source: Place,
        target: Place,
        replicas: int,
        landing: LandingCopy | None,
        report: Callable[[str], None],
        limits: CopyLimits = COPY_LIMITS,
    ) -> None:
        """`landing` is None if no landing store is at the old servers; `report` gets a line before each step."""
        self._store = store
        self._cluster = cluster
        self._source = source
        self._target = target
        self._replicas = replicas
        self._landing = landing
        self._report = report
        self._limits = limits

    async def run(self, *, is_dry_run: bool = False, removes_old: bool = False) -> bool:
        """Move the journal; `Invalid` with the reason if that is not possible. False if it was moved before."""
        plan = await self._plan(removes_old=removes_old)
        if plan is None:
            self._report(f"the journal is at {self._target.servers} already. {self._next_steps()}")
            return False
        await self._describe(plan)
        if is_dry_run:
            return True
        if plan.old is not None:
            await self._remove(plan.old)
        found = plan.found or await self._make(plan.source)
        copy = JournalCopy(
            plan.source,
            await self._target.streams.journal(),
            self._target.streams,
            report=self._report,
            limits=self._limits,
        )
        await copy.catch_up()
        await self._copy_landing()
        self._report("ending the old journal; from now on clients wait")
        await copy.end_source(MoveMark(self._target.servers, found.created))
        await self._copy_landing()
        self._report(f"naming the new journal in the object {marker_key(self._cluster)}")
        await name_in_marker(self._store, self._cluster, plan.marker, found.created)
        self._report(f"the journal is at {self._target.servers}. {self._next_steps()}")
        return True

    async def _plan(self, *, removes_old: bool) -> _Plan | None:
        """None if the marker names the stream at the new servers."""
        marker = await read_marker(self._store, self._cluster)
        if marker is None:
            raise Invalid(f"the object store has no {marker_key(self._cluster)}, so there is no journal to move")
        target = await self._target.streams.find()
        if target is not None and target.created == marker.identity.created:
            return None
        source = await self._source.streams.find()
        if source is None or source.created != marker.identity.created:
            found = "no journal" if source is None else f"a stream made at {source.created}"
            raise Invalid(
                f"at {self._source.servers} is {found}, but the object {marker_key(self._cluster)} names the journal "
                f"made at {marker.identity.created}. Nothing was changed. Give the servers of that journal"
            )
        journal = await self._source.streams.journal()
        if target is None:
            return _Plan(marker, journal, None, None)
        is_old = await self._is_old(target, removes_old=removes_old)
        return _Plan(marker, journal, None, target) if is_old else _Plan(marker, journal, target, None)

    async def _is_old(self, target: FoundStream, *, removes_old: bool) -> bool:
        """Whether the stream at the new servers will be removed; if not, the move continues with it."""
        if await has_mark(await self._target.streams.journal(), limits=self._limits):
            if removes_old:
                return True
            raise Invalid(
                f"the journal was moved away from {self._target.servers} before, and its old stream is still there. "
                f"Nothing was changed. Remove that stream with the flag --remove-old"
            )
        if target.made_by != MADE_BY_MOVE:
            raise Invalid(
                f"at {self._target.servers} is a journal of cluster {self._cluster} already, made at {target.created}. "
                f"Nothing was changed. Give other servers, or remove that stream if it is not needed"
            )
        return False

    async def _remove(self, old: FoundStream) -> None:
        self._report(f"removing the journal that was moved away from {self._target.servers} before")
        found = await self._target.streams.find()
        if found is not None and found.created != old.created:
            raise Invalid(f"another move made a stream at {self._target.servers} meanwhile; run the command again")
        if found is not None:
            await self._target.streams.remove()

    async def _make(self, source: Journal) -> FoundStream:
        self._report(f"making the stream at {self._target.servers} with {self._replicas} copies")
        info = await source.describe()
        return await self._target.streams.make(info.first_sequence, self._replicas)

    async def _copy_landing(self) -> None:
        if self._landing is not None:
            await self._landing.copy()

    async def _describe(self, plan: _Plan) -> None:
        info = await plan.source.describe()
        entries = info.last_sequence - info.first_sequence + 1
        self._report(
            f"cluster {self._cluster}: {entries} entries, {info.first_sequence} to {info.last_sequence}, move from "
            f"{self._source.servers} to {self._target.servers}"
            + (", where an earlier run began" if plan.found is not None else "")
        )
        if self._landing is not None:
            objects, size_bytes = await self._landing.count()
            self._report(f"{objects} objects of the landing store ({size_bytes:,} bytes) move with it")

    def _next_steps(self) -> str:
        return (
            f"Set PENSTOCK_NATS_URL={self._target.servers} for all services, and "
            f"PENSTOCK_JOURNAL_REPLICAS={self._replicas} and PENSTOCK_NATS_MONITOR_URL for sequencers. Start all "
            f"again, sequencers first"
        )
