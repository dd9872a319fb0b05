"""The marker in the object store that names the stream of this cluster's journal."""

import msgspec
import structlog

from penstock.contracts.errors import Conflict, Corrupt, PenstockError, Unavailable
from penstock.contracts.ids import check_token
from penstock.contracts.subjects import journal_stream
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore

MARKER = "journal-identity"
_PUT_ATTEMPTS_MAX = 3  # the store itself retries; this is for a put whose outcome is still unknown

log = structlog.get_logger()


class JournalIdentity(msgspec.Struct, frozen=True):
    """The marker, as JSON: the stream's name and creation time, as the server formats it."""

    stream: str
    created: str


class Marker(msgspec.Struct, frozen=True):
    """The marker, and the version of its object."""

    identity: JournalIdentity
    etag: str


def marker_key(cluster: str) -> str:
    """The marker's key in the store."""
    return f"{check_token('cluster', cluster)}/{MARKER}"


async def read_identity(store: ObjectStore, cluster: str) -> JournalIdentity | None:
    """The journal in the marker; None without a marker, `Corrupt` if it cannot be read."""
    key = marker_key(cluster)
    try:
        return msgspec.json.decode(await store.get(key), type=JournalIdentity)
    except NotFound:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Corrupt(f"the object {key} does not name a journal: {error}") from error


async def read_marker(store: ObjectStore, cluster: str) -> Marker | None:
    """The marker with its version, for a caller that replaces it; otherwise like `read_identity`."""
    key = marker_key(cluster)
    versions = [info.etag for info in await store.list(key) if info.key == key]
    identity = await read_identity(store, cluster) if versions else None
    return None if identity is None else Marker(identity, versions[0])


async def write_marker(store: ObjectStore, cluster: str, found: JournalIdentity) -> JournalIdentity:
    """Write the marker unless there is one, and return the stored one."""
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


async def name_in_marker(store: ObjectStore, cluster: str, old: Marker | None, created: str) -> None:
    """Write the stream made at `created` into the marker; `Conflict` if another process changed the marker."""
    identity = JournalIdentity(journal_stream(cluster), created)
    key, body = marker_key(cluster), [msgspec.json.encode(identity)]
    try:
        if old is None:
            await store.put(key, body)
        else:
            await store.put(key, body, if_match=old.etag)
    except (Conflict, Unavailable) as error:
        await _check_is_named(store, cluster, identity, error)


async def _check_is_named(store: ObjectStore, cluster: str, identity: JournalIdentity, error: PenstockError) -> None:
    found = await read_marker(store, cluster)
    if found is None or found.identity != identity:
        raise error
