"""Snapshots in the object store: list them, read one, check one, store one, and find the one to start from."""

import contextlib

import msgspec
import structlog

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, Invalid, Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore, streamed_put
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.segment.keys import parse_snapshot_key, snapshot_key, snapshots_prefix
from penstock_sequencer.storage.snapshot_format import (
    HEAD_BYTES,
    PayloadCheck,
    Snapshot,
    UnknownVersion,
    read_head,
    read_snapshot,
)

NO_PREFIX = ""  # the store's address has its own prefix
FRAGMENT_BYTES = 8 * 1024 * 1024  # read at once to check a snapshot without holding all of it
LISTINGS_MAX = 10  # a start lists again if its snapshot was deleted since the listing

log = structlog.get_logger()


class Found(msgspec.Struct, frozen=True):
    """The snapshots that a start found in the store."""

    snapshot: Snapshot | None  # the newest good one
    damaged: list[str]  # the damage of newer ones


async def list_snapshots(store: ObjectStore, cluster: str) -> list[int]:
    """The sequence of every snapshot, ascending; other objects under the prefix are ignored."""
    sequences = []
    after = ""
    while page := await store.list(snapshots_prefix(NO_PREFIX, cluster), after):
        for info in page:
            with contextlib.suppress(Invalid):
                sequences.append(parse_snapshot_key(info.key))
        after = page[-1].key
    return sequences


async def read_stored_snapshot(
    store: ObjectStore, cluster: str, sequence: int, *, known_level: int = NEWEST_LEVEL
) -> Snapshot:
    """One snapshot; `NotFound` if there is none, `Corrupt` if it is damaged, `UnknownVersion` if it is too new."""
    key = snapshot_key(NO_PREFIX, cluster, sequence)
    data = await store.get(key)
    try:
        snapshot = read_snapshot(data, known_level=known_level)
    except UnknownVersion:
        raise
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}") from error
    _check_place(key, snapshot.cluster, snapshot.state.sequence, cluster, sequence)
    return snapshot


async def check_stored_snapshot(store: ObjectStore, cluster: str, sequence: int) -> int:
    """Read a snapshot by fragments, and return its size in bytes; `NotFound` or `Corrupt` if it is useless.

    `UnknownVersion` if it is of a later release. `Invalid` proves nothing about the snapshot: the store rejects the
    request.
    """
    key = snapshot_key(NO_PREFIX, cluster, sequence)
    try:
        head = read_head(await _range(store, key, 0, HEAD_BYTES))
        check = PayloadCheck(head)
        size_bytes = HEAD_BYTES + head.payload_length
        for position in range(HEAD_BYTES, size_bytes, FRAGMENT_BYTES):
            check.take(await _range(store, key, position, min(FRAGMENT_BYTES, size_bytes - position)))
        check.finish()
    except UnknownVersion as error:
        raise UnknownVersion(f"{key}: {error}") from error
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}") from error
    _check_place(key, head.cluster, head.sequence, cluster, sequence)
    return size_bytes


async def put_snapshot(store: ObjectStore, cluster: str, sequence: int, data: Buffer) -> int:
    """Store a snapshot, verify it, and return its size in bytes; a damaged object is deleted and raises `Corrupt`.

    It writes small parts, one by one: S3's client copies and hashes each part in one step, 200 MB in over 1 s.
    """
    key = snapshot_key(NO_PREFIX, cluster, sequence)
    with contextlib.suppress(AlreadyExists):  # stored by an earlier custodian, or by a put in doubt
        async with streamed_put(store, key, part_bytes=PART_BYTES_MIN, parts_in_flight_max=1) as put:
            await put.write(data)
    try:
        return await check_stored_snapshot(store, cluster, sequence)
    except UnknownVersion:  # a custodian of a later release has stored it
        raise
    except Corrupt:
        await store.delete([key])
        raise


async def _range(store: ObjectStore, key: str, position: int, length: int) -> bytes:
    """These bytes; `Corrupt` if the object ends before them, `Invalid` if the store rejects for another reason."""
    try:
        return await store.get_range(key, position, length)
    except NotFound:
        raise
    except Invalid as error:  # no proof of damage: a store that denies access raises it too
        sizes = [info.size_bytes for info in await store.list(key, limit=1) if info.key == key]
        if not sizes or sizes[0] >= position + length:
            raise
        raise Corrupt(f"it ends after {sizes[0]} bytes: {error}") from error


async def find_newest_snapshot(store: ObjectStore, cluster: str, *, known_level: int = NEWEST_LEVEL) -> Found:
    """The newest good snapshot; `UnknownVersion` if the newest undamaged one is too new for this release."""
    for _ in range(LISTINGS_MAX):
        with contextlib.suppress(NotFound):
            return await _newest_of(store, cluster, await list_snapshots(store, cluster), known_level)
    raise Unavailable(f"the store lists snapshots of {cluster} that do not exist")


async def _newest_of(store: ObjectStore, cluster: str, sequences: list[int], known_level: int) -> Found:
    damaged: list[str] = []
    for sequence in reversed(sequences):
        try:
            return Found(await read_stored_snapshot(store, cluster, sequence, known_level=known_level), damaged)
        except UnknownVersion as error:
            raise UnknownVersion(f"{snapshot_key(NO_PREFIX, cluster, sequence)}: {error}") from error
        except Corrupt as error:
            log.error("snapshot_damaged", error=str(error))
            damaged.append(str(error))
    return Found(None, damaged)


def _check_place(key: str, found_cluster: str, found_sequence: int, cluster: str, sequence: int) -> None:
    if (found_cluster, found_sequence) != (cluster, sequence):
        raise Corrupt(f"{key}: a snapshot of cluster {found_cluster} at entry {found_sequence}")
