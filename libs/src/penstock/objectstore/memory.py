"""An object store in the memory of this process, for tests; stores with the same name share their objects."""

from collections.abc import Callable, Sequence

import msgspec

from penstock.contracts.codec import Buffer
from penstock.objectstore.errors import AlreadyExists, EtagMismatch, NotFound
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    PartSizes,
    Unfinished,
    check_key,
    check_keys,
    check_listing,
    check_parts,
)
from penstock.objectstore.whole_reads import WholeReads


class _StoredObject(msgspec.Struct, frozen=True):
    data: bytes
    etag: str
    modified_ms: int


class _Upload(msgspec.Struct, frozen=True):
    begun: Unfinished
    parts: dict[int, bytes]


class Objects:
    """The objects and uploads that stores with the same name share."""

    def __init__(self) -> None:
        self.held: dict[str, _StoredObject] = {}
        self.uploads: dict[str, _Upload] = {}  # by the names of the uploads
        self.versions = 0  # of objects and uploads; their names are never used again


_SHARED: dict[str, Objects] = {}  # by the name in memory://name, for this process


class MemoryStore(WholeReads):
    """Objects in a dict; no call waits for anything. It stands for a store of either kind (`has_local_reads`)."""

    def __init__(self, name: str = "", *, now_ms: Callable[[], int] = lambda: 0, has_local_reads: bool = False) -> None:
        self.has_local_reads = has_local_reads
        self._objects = _SHARED.setdefault(name, Objects()) if name else Objects()
        self._now_ms = now_ms

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        check_key(key)
        stored = self._objects.held.get(key)
        if if_match is None and stored is not None:
            raise AlreadyExists(f"object exists: {key}")
        if if_match is not None and (stored is None or stored.etag != if_match):
            raise EtagMismatch(f"object with etag {stored.etag if stored else None}, expected {if_match}: {key}")
        self._objects.versions += 1
        etag = f"v{self._objects.versions}"
        self._objects.held[key] = _StoredObject(b"".join(body), etag, self._now_ms())
        return etag

    async def get(self, key: str) -> bytes:
        check_key(key)
        stored = self._objects.held.get(key)
        if stored is None:
            raise NotFound(f"no object: {key}")
        return stored.data

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        check_listing(prefix, after, limit)
        stored = self._objects.held
        keys = sorted(key for key in stored if key.startswith(prefix) and key > after)[:limit]
        return [ObjectInfo(key, len(stored[key].data), stored[key].etag, stored[key].modified_ms) for key in keys]

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        for key in keys:
            self._objects.held.pop(key, None)

    async def begin_parts(self, key: str, part_bytes: int) -> "MemoryParts":
        check_parts(key, part_bytes)
        self._objects.versions += 1
        begun = Unfinished(key, f"u{self._objects.versions:08}", self._now_ms())
        self._objects.uploads[begun.name] = _Upload(begun, {})
        return MemoryParts(self, self._objects.uploads, begun, part_bytes)

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        check_listing(prefix, "", limit)
        begun = [upload.begun for upload in self._objects.uploads.values() if upload.begun.key.startswith(prefix)]
        return sorted(begun, key=lambda upload: (upload.key, upload.name))[:limit]

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        self._objects.uploads.pop(unfinished.name, None)

    async def close(self) -> None:
        """Does nothing: the next store with the same name has the objects."""


class MemoryParts:
    """Parts in a dict until they become an object."""

    def __init__(self, store: MemoryStore, uploads: dict[str, _Upload], begun: Unfinished, part_bytes: int) -> None:
        self._store = store
        self._uploads = uploads
        self._begun = begun
        self._sizes = PartSizes(begun.key, part_bytes)

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        size = self._sizes.check(number, body)
        self._parts()[number] = b"".join(body)
        self._sizes.record(number, size)

    async def complete(self) -> str:
        parts = self._parts()
        self._sizes.check_complete()
        etag = await self._store.put(self._begun.key, [parts[number] for number in sorted(parts)])
        self._uploads.pop(self._begun.name, None)
        return etag

    async def abort(self) -> None:
        self._uploads.pop(self._begun.name, None)

    def _parts(self) -> dict[int, bytes]:
        if self._begun.name not in self._uploads:
            raise NotFound(f"no upload in progress: {self._begun.key}")
        return self._uploads[self._begun.name].parts
