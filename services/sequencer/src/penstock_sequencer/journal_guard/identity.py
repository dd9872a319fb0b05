"""Which stream is this cluster's journal: a marker in the object store, so that a lost journal is never replaced.

The stream is made first and the marker after it. So there are these cases at a start:

- no marker, no stream: a new cluster. Several replicas may make both at once; all find the same stream and one marker.
- no marker, a stream without entries: a replica died in between. The marker is written.
- no marker, a stream with entries: nobody appends before there is a marker, so the store was lost, or is another one.
  Halt: the entries speak of objects that are not there.
- a marker and the stream that it names: go on.
- a marker, and no stream or another one: the journal was lost. Halt, and make nothing.
"""

from typing import Protocol

import msgspec
import structlog

from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.ids import check_token
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore
from penstock.runtime.journal import Journal, JournalLost
from penstock_sequencer.replication.halt import REMEDY, Halted

MARKER = "journal-identity"
_PUT_ATTEMPTS_MAX = 3  # the store itself retries; this is for a put whose outcome stayed unknown

log = structlog.get_logger()


class JournalIdentity(msgspec.Struct, frozen=True):
    """The marker, as JSON: the stream's name and when it was made, in the server's words."""

    stream: str
    created: str


class Marker(msgspec.Struct, frozen=True):
    """The marker, and which version of the object it is."""

    identity: JournalIdentity
    etag: str


class JournalOpener(Protocol):
    """Whatever has journals; a `NatsConnection`."""

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal: ...


def marker_key(cluster: str) -> str:
    """Where the marker lies in the store."""
    return f"{check_token('cluster', cluster)}/{MARKER}"


async def open_own_journal(journals: JournalOpener, store: ObjectStore, cluster: str, replicas: int) -> Journal:
    """This cluster's journal, made if the cluster is new; `Halted` if it was lost, `Unavailable` if nobody answers."""
    marker = await read_identity(store, cluster)
    try:
        journal = await journals.journal(cluster, create=marker is None, replicas=replicas)
    except JournalLost as error:
        raise _lost(cluster, marker, str(error)) from error
    described = await journal.describe()
    found = JournalIdentity(journal_stream(cluster), described.created)
    if marker is None and described.last_sequence:  # another replica may have been faster with all of it
        marker = await read_identity(store, cluster)
    if marker is None and described.last_sequence:
        raise Halted(
            f"the sequencer halted: the object store has no {marker_key(cluster)}, but the journal of cluster "
            f"{cluster} has {described.last_sequence} entries: the store was lost, or this is not the journal's store. "
            f"Nothing was changed or deleted. Name the store that belongs to the journal, or begin anew under another "
            f"cluster name"
        )
    if marker is None:
        marker = await _write_marker(store, cluster, found)
    if marker != found:
        raise _lost(cluster, marker, f"the stream there was made at {found.created}")
    return journal


async def read_identity(store: ObjectStore, cluster: str) -> JournalIdentity | None:
    """What the marker says; None if there is none, `Corrupt` if it cannot be read."""
    key = marker_key(cluster)
    try:
        return msgspec.json.decode(await store.get(key), type=JournalIdentity)
    except NotFound:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Corrupt(f"the object {key} does not name a journal: {error}") from error


async def read_marker(store: ObjectStore, cluster: str) -> Marker | None:
    """The marker with its version, for who wants to replace it; else as `read_identity`."""
    key = marker_key(cluster)
    versions = [info.etag for info in await store.list(key) if info.key == key]
    identity = await read_identity(store, cluster) if versions else None
    return None if identity is None else Marker(identity, versions[0])


async def _write_marker(store: ObjectStore, cluster: str, found: JournalIdentity) -> JournalIdentity:
    """Write the marker unless there is one, and return the one that is there."""
    for _ in range(_PUT_ATTEMPTS_MAX):
        try:
            await store.put(marker_key(cluster), [msgspec.json.encode(found)])
            log.info("journal_adopted", stream=found.stream, created=found.created)
            return found
        except (AlreadyExists, Unavailable):
            marker = await read_identity(store, cluster)
            if marker is not None:
                return marker
    raise Unavailable(f"the store does not take the object {marker_key(cluster)}")


def _lost(cluster: str, marker: JournalIdentity | None, found: str) -> Halted:
    made = f", made at {marker.created}" if marker is not None else ""
    return Halted(f"the sequencer halted: the journal of cluster {cluster}{made} is not there: {found}. {REMEDY}")
