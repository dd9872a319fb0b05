"""The marker in the object store: which stream is this cluster's journal."""

import msgspec
import structlog

from penstock.contracts.errors import Corrupt, Unavailable
from penstock.contracts.ids import check_token
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore

MARKER = "journal-identity"
_PUT_ATTEMPTS_MAX = 3  # the store itself retries; this is for a put whose outcome stayed unknown

log = structlog.get_logger()


class JournalIdentity(msgspec.Struct, frozen=True):
    """The marker, as JSON: the stream's name and when it was made, in the server's words."""

    stream: str
    created: str


class Marker(msgspec.Struct, frozen=True):
    """The marker, and the version of the object that it is."""

    identity: JournalIdentity
    etag: str


def marker_key(cluster: str) -> str:
    """The marker's key in the store."""
    return f"{check_token('cluster', cluster)}/{MARKER}"


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
    """The marker with its version, for a caller that replaces it; else as `read_identity`."""
    key = marker_key(cluster)
    versions = [info.etag for info in await store.list(key) if info.key == key]
    identity = await read_identity(store, cluster) if versions else None
    return None if identity is None else Marker(identity, versions[0])


async def write_marker(store: ObjectStore, cluster: str, found: JournalIdentity) -> JournalIdentity:
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
