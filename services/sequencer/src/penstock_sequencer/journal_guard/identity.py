"""Opens this cluster's journal and no other stream; halts when the marker names another.

The marker in the object store (storage/journal_marker.py) names the stream. The stream is made first and the marker
after it. So a start finds one of these cases:

- no marker, no stream: a new cluster. Several replicas may make both at once; all find the same stream and one marker.
- no marker, a stream without entries: a replica died in between. The marker is written.
- no marker, a stream with entries: no replica appends before there is a marker, so the store was lost, or is another
  one. Halt: the entries refer to objects that do not exist.
- a marker and the stream that it names: start.
- a marker, and no stream or another one: the journal was lost. Halt, and make nothing.

Later a rebuild or a move may name another journal. A rebuild does not run while the cluster archives. But an operator
can override that, or the custodian may not have reached the store. Two journals over one store acknowledge records that
the other does not know. So the old journal's sequencers stop as soon as they see the new name (`IdentityWatch`).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import ObjectStore
from penstock.runtime.journal import Journal, JournalLost
from penstock_sequencer.replication.halt import REMEDY, Halted
from penstock_sequencer.storage.journal_marker import JournalIdentity, marker_key, read_identity, write_marker

MARKER_INTERVAL_S = 15.0  # between two looks at the marker

log = structlog.get_logger()


class JournalOpener(Protocol):
    """Opens journals; a `NatsConnection`."""

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal: ...


class OwnJournal(msgspec.Struct, frozen=True):
    """The journal of this cluster."""

    journal: Journal
    is_new: bool  # until this start, the store named no journal and there was no entry


async def open_own_journal(journals: JournalOpener, store: ObjectStore, cluster: str, replicas: int) -> OwnJournal:
    """Open this cluster's journal; make it if the cluster is new.

    `Halted` if it was lost, `Unavailable` if no server answers.
    """
    marker = await read_identity(store, cluster)
    try:
        journal = await journals.journal(cluster, create=marker is None, replicas=replicas)
    except JournalLost as error:
        raise _lost(cluster, marker, str(error)) from error
    described = await journal.describe()
    found = JournalIdentity(journal_stream(cluster), described.created)
    if marker is None and described.last_sequence:  # another replica may have made journal, marker and entries since
        marker = await read_identity(store, cluster)
    if marker is None and described.last_sequence:
        raise Halted(
            f"the sequencer halted: the object store has no {marker_key(cluster)}, but the journal of cluster "
            f"{cluster} has {described.last_sequence} entries. The store was lost, or this is not the journal's store. "
            f"Nothing was changed or deleted. Set the store that belongs to the journal, or start anew under another "
            f"cluster name"
        )
    is_new = marker is None
    if marker is None:
        marker = await write_marker(store, cluster, found)
    if marker != found:
        raise _lost(cluster, marker, f"the stream there was made at {found.created}")
    return OwnJournal(journal, is_new)


def _lost(cluster: str, marker: JournalIdentity | None, found: str) -> Halted:
    made = f", made at {marker.created}" if marker is not None else ""
    return Halted(f"the sequencer halted: the journal of cluster {cluster}{made} does not exist: {found}. {REMEDY}")


class IdentityWatch:
    """Reads the marker repeatedly; create it when the marker is known to name this journal."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster: str,
        journal: Journal,
        set_degraded: Callable[[str, str], None],
        interval_s: float = MARKER_INTERVAL_S,
    ) -> None:
        """`set_degraded` gets "store" and its problem, "" when the problem is over."""
        self._store = store
        self._cluster = cluster
        self._journal = journal
        self._set_degraded = set_degraded
        self._interval_s = interval_s

    async def run(self) -> None:
        """Watch until cancelled; `Halted` when the marker names another journal.

        A marker that is gone or cannot be read names no other journal. Until it is back, the sequencer is degraded.
        The next start decides what to do about it.
        """
        ours: JournalIdentity | None = None
        while True:
            try:
                ours = ours or await self._identity()
                named = await read_identity(self._store, self._cluster)
                if named is None:
                    log.warning("journal_marker_gone", key=marker_key(self._cluster))
                elif named != ours:
                    raise self._halted(named, ours)
                self._set_degraded("store", "" if named is not None else self._lost_objects())
            except (Unavailable, Corrupt, Invalid) as error:
                log.warning("journal_marker_not_read", error=str(error))
                self._set_degraded("store", f"the object store does not answer as it should: {error}")
            await asyncio.sleep(self._interval_s)

    def _lost_objects(self) -> str:
        return (
            f"the object store has lost {marker_key(self._cluster)}, and perhaps records; restore its objects, and "
            f"check them with `penstock audit`"
        )

    async def _identity(self) -> JournalIdentity:
        return JournalIdentity(journal_stream(self._cluster), (await self._journal.describe()).created)

    def _halted(self, named: JournalIdentity, ours: JournalIdentity) -> Halted:
        return Halted(
            f"the sequencer halted: the object {marker_key(self._cluster)} names the journal made at {named.created}, "
            f"but this one was made at {ours.created}: a rebuild or a move to other NATS servers replaced "
            f"this journal. Nothing was deleted. Start sequencers at the NATS of the new journal. If that journal must "
            f"go, write this into the object: {msgspec.json.encode(ours).decode()}"
        )
