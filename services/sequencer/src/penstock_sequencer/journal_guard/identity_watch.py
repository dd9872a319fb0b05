"""Whether the store still says that our journal is the cluster's: a rebuild elsewhere may have named another.

A rebuild refuses while the cluster archives, but it can be told not to, or the custodian may not have got through to
the store. Two journals over one store acknowledge records that the other knows nothing of, so the old one's sequencers
stop as soon as they see it.
"""

import asyncio

import msgspec
import structlog

from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import ObjectStore
from penstock.runtime.journal import Journal
from penstock_sequencer.journal_guard.identity import JournalIdentity, marker_key, read_identity
from penstock_sequencer.replication.halt import Halted

LOOK_AGAIN_S = 15.0

log = structlog.get_logger()


class IdentityWatch:
    """Reads the marker again and again; to be made when it was found to name this journal."""

    def __init__(self, store: ObjectStore, cluster: str, journal: Journal) -> None:
        self._store = store
        self._cluster = cluster
        self._journal = journal

    async def run(self) -> None:
        """Watch until cancelled; `Halted` when the marker names another journal.

        A marker that is gone or cannot be read names no other: the next start tells what to do about it.
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
            except (Unavailable, Corrupt, Invalid) as error:
                log.warning("journal_marker_not_read", error=str(error))
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _identity(self) -> JournalIdentity:
        return JournalIdentity(journal_stream(self._cluster), (await self._journal.describe()).created)

    def _halted(self, named: JournalIdentity, ours: JournalIdentity) -> Halted:
        return Halted(
            f"the sequencer halted: the object {marker_key(self._cluster)} names the journal made at {named.created}, "
            f"this one was made at {ours.created}: a rebuild at another NATS took the cluster over. Nothing was "
            f"deleted. Start sequencers at the NATS of the new journal; or, if that one is to go, put this into the "
            f"object again: {msgspec.json.encode(ours).decode()}"
        )
