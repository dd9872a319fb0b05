"""Checks that the bucket belongs to the journal: its marker must name the journal of the sequencers (ADR 0004).

In a wrong bucket, or under a wrong prefix, a janitor would take every object for an orphan. So a janitor does nothing
before the marker is right once. It checks the marker again before each deletion.
"""

import msgspec

from penstock.contracts.errors import Conflict, Corrupt
from penstock.contracts.ids import check_token
from penstock.contracts.queries.janitor import JournalQuery, JournalView
from penstock.objectstore import NotFound, ObjectStore
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock_janitor.rules.journal import Identity

MARKER = "journal-identity"
LOST_ENTRY = "journal-lost-entry"  # the sequencers' note that the journal has lost entries


class WrongStore(Conflict):
    """The store does not belong to the journal."""


def marker_key(cluster: str) -> str:
    """The key of the marker in the store."""
    return f"{check_token('cluster', cluster)}/{MARKER}"


def lost_entry_key(cluster: str) -> str:
    """The key of the note that the journal has lost entries."""
    return f"{check_token('cluster', cluster)}/{LOST_ENTRY}"


class Guard:
    """Compares the marker in the store with the journal of the sequencers."""

    def __init__(self, store: ObjectStore, sequencers: SequencerClient, cluster: str) -> None:
        self._store = store
        self._sequencers = sequencers
        self._cluster = cluster
        self._has_agreed = False

    async def journal(self) -> Identity:
        """The sequencers' journal, if the marker was right once; else the result of `check`."""
        return await self._current() if self._has_agreed else await self.check()

    async def check(self) -> Identity:
        """The journal that the store belongs to now; `WrongStore` if that is not the sequencers' journal."""
        journal = await self._current()
        marked = await self._marked()
        if marked != journal:
            self._has_agreed = False
            found = "has no such object" if marked is None else f"names {marked.stream}, created at {marked.created}"
            raise WrongStore(
                f"this is not the store of cluster {self._cluster}, and nothing in it is touched: the object "
                f"{marker_key(self._cluster)} should name the journal {journal.stream}, created at {journal.created}; "
                f"the store {found}"
            )
        self._has_agreed = True
        return journal

    async def _current(self) -> Identity:
        view = await self._sequencers.query("journal", JournalQuery(0), JournalView)
        return Identity(view.stream, view.created)

    async def _marked(self) -> Identity | None:
        key = marker_key(self._cluster)
        try:
            return msgspec.json.decode(await self._store.get(key), type=Identity)
        except NotFound:
            return None
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise Corrupt(f"the object {key} does not name a journal: {error}") from error
