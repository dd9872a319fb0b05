"""The note in the object store that this cluster's journal has lost entries; it names the newest one.

A replica writes it before it halts. Later starts halt until the journal reaches that entry again. Without it each
restarted replica could append a little, until another entry is in that place.
"""

from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import check_token
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore

NOTE = "journal-lost-entry"


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
        raise Corrupt(f"the object {key} does not name a journal entry") from error


async def write_lost_entry(store: ObjectStore, cluster: str, sequence: int) -> None:
    """Write the note, unless there is one."""
    try:
        await store.put(lost_entry_key(cluster), [str(sequence).encode()])
    except AlreadyExists:
        return
