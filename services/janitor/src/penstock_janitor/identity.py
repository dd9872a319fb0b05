"""Whether the bucket is the journal's own: its marker must name the journal that the sequencers have (ADR 0004).

A janitor that was given another bucket, or another prefix in it, would take everything there for orphans. So nothing is
done before the two have been seen to agree, and nothing is deleted unless they agree once more.
"""

from datetime import UTC, datetime

import msgspec

from penstock.contracts.errors import Conflict, Corrupt
from penstock.contracts.ids import check_token
from penstock.contracts.queries.janitor import JournalQuery, JournalView
from penstock.objectstore import NotFound, ObjectStore
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock_janitor.judge import NEVER

MARKER = "journal-identity"
# A journal that a rebuild has made begins beyond it. Any other one comes there after weeks, at the earliest.
REBUILT_SEQUENCE_MIN = 1_000_000_000


class WrongStore(Conflict):
    """The store is not the one that belongs to the journal."""


class Identity(msgspec.Struct, frozen=True):
    """A journal: its stream, and when that was made, in the server's words."""

    stream: str
    created: str


def rebuilt_ms(journal: Identity, sequence: int) -> int:
    """When a journal that has reached `sequence` was made anew from the store; `NEVER` if it was not."""
    if sequence < REBUILT_SEQUENCE_MIN:
        return NEVER
    try:
        made = datetime.fromisoformat(journal.created)
    except ValueError as error:
        raise Corrupt(f"nobody knows when the journal {journal.stream} was made: {error}") from error
    return int((made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp() * 1000)


def marker_key(cluster: str) -> str:
    """Where the marker lies in the store."""
    return f"{check_token('cluster', cluster)}/{MARKER}"


class Guard:
    """Compares the two."""

    def __init__(self, store: ObjectStore, sequencers: SequencerClient, cluster: str) -> None:
        self._store = store
        self._sequencers = sequencers
        self._cluster = cluster
        self._was_right = False

    async def journal(self) -> Identity:
        """The sequencers' journal, once the store was seen to be its own; else as `check`."""
        return await self._asked() if self._was_right else await self.check()

    async def check(self) -> Identity:
        """The journal that the store belongs to now; `WrongStore` if it is not the sequencers'."""
        journal = await self._asked()
        marked = await self._marked()
        if marked != journal:
            self._was_right = False
            found = "has none" if marked is None else f"names {marked.stream}, made at {marked.created}"
            raise WrongStore(
                f"this is not the store of cluster {self._cluster}, and nothing in it is touched: the object "
                f"{marker_key(self._cluster)} should name the journal {journal.stream}, made at {journal.created}; "
                f"the store {found}"
            )
        self._was_right = True
        return journal

    async def _asked(self) -> Identity:
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
