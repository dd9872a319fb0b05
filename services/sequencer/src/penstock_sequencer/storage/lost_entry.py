"""The note in the object store that this cluster's journal has lost entries; it names the newest one.

A replica writes it before it halts. Later starts halt until the journal reaches that entry again. Without it each
restarted replica could append a little, until another entry is in that place.
"""

from penstock.contracts.errors import Conflict, Corrupt, Unavailable
from penstock.contracts.ids import check_token
from penstock.objectstore import NotFound, ObjectStore

NOTE = "journal-lost-entry"
_PUT_ATTEMPTS_MAX = 5  # several replicas may write at once, and each attempt fails only if another one succeeded


def lost_entry_key(cluster: str) -> str:
    """The note's key in the store."""
    return f"{check_token('cluster', cluster)}/{NOTE}"


async def read_lost_entry(store: ObjectStore, cluster: str) -> int:
    """The entry in the note; 0 without a note, `Corrupt` if it cannot be read."""
    key = lost_entry_key(cluster)
    try:
        text = await store.get(key)
    except NotFound:
        return 0
    try:
        return int(text)
    except ValueError as error:
        raise Corrupt(
            f"the object {key} does not name a journal entry: delete it if you know that the journal has lost nothing"
        ) from error


async def write_lost_entry(store: ObjectStore, cluster: str, sequence: int) -> None:
    """Write the note, unless it names this entry or a newer one already.

    An older note may be of an earlier loss, or of a replica that misses fewer entries.
    """
    key, body = lost_entry_key(cluster), [str(sequence).encode()]
    for _ in range(_PUT_ATTEMPTS_MAX):
        etag = next((info.etag for info in await store.list(key) if info.key == key), None)
        if etag is not None and await _noted(store, cluster) >= sequence:
            return
        try:
            await store.put(key, body, if_match=etag)
        except Conflict:  # another replica was faster, perhaps with a newer entry
            continue
        return
    raise Unavailable(f"the store does not take the object {key}")


async def _noted(store: ObjectStore, cluster: str) -> int:
    """The entry in the note; 0 if it names none, because it must be replaced then."""
    try:
        return await read_lost_entry(store, cluster)
    except Corrupt:
        return 0
