"""A wrapper that encrypts objects; its callers see plain bytes and plain sizes."""

import asyncio
import enum
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, Invalid
from penstock.objectstore.encryption import chunks
from penstock.objectstore.encryption.chunks import CHUNK_BYTES, HEAD_BYTES, NONCE_BYTES, STORED_BYTES, Opened
from penstock.objectstore.encryption.keys import Keys
from penstock.objectstore.errors import NotFound, RangeBeyond, range_beyond
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    ObjectStore,
    PartedPut,
    PartSizes,
    Unfinished,
    check_key,
    check_parts,
    check_range,
    copy_into,
)
from penstock.runtime.clock import Entropy

INLINE_BYTES_MAX = 1024 * 1024  # about 0.3 ms; more would delay other tasks, so it runs in a thread
HEADS_PARALLEL_MAX = 32  # half of the connections to S3
HEADS_KNOWN_MAX = 100_000  # listed objects that are known to be encrypted or not
MARKER = "encryption"  # an object outside of all clusters, whose presence shows that a store needs keys

Result = TypeVar("Result")


class Plain(enum.Enum):
    """The use of objects that are not encrypted."""

    REJECT = "reject"
    READ = "read"
    WRITE = "write"  # and read; also reads encrypted objects


class EncryptedStore:
    """Encrypts what it puts into another store, and decrypts what it gets.

    `Corrupt` if an object is not as it was written. `Invalid` if its key is unknown, or if it is not encrypted and that
    is not allowed: this proves no damage.
    """

    def __init__(self, inner: ObjectStore, keys: Keys, entropy: Entropy, *, plain: Plain = Plain.REJECT) -> None:
        self._inner = inner
        self._keys = keys
        self._entropy = entropy
        self._plain = plain
        self._heads = asyncio.Semaphore(HEADS_PARALLEL_MAX)
        self._known: dict[tuple[str, str], bool] = {}  # whether encrypted, by key and etag

    @property
    def has_local_reads(self) -> bool:
        return self._inner.has_local_reads

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        check_key(key)
        if self._plain is not Plain.WRITE:
            body = await self.sealed(key, 0, body, is_end=True)
        return await self._inner.put(key, body, if_match=if_match)

    async def get(self, key: str) -> bytes:
        stored = await self._inner.get(key)
        if not chunks.is_sealed(stored):
            self._check_plain(key)
            return stored
        opened = await self._opened(key, 0, stored)
        if not opened.is_end:
            raise _cut(key, len(opened.chunks))
        return b"".join(opened.chunks)

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        data = await self.get_up_to(key, position, length)
        if len(data) < length:
            raise range_beyond(key, position, length)
        return data

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        copy_into(buffer, await self.get_range(key, position, len(buffer)))

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        """As in every store; whole chunks are read, so up to 128 KiB more."""
        check_range(key, position, length)
        first, last = position // CHUNK_BYTES, (position + length - 1) // CHUNK_BYTES
        try:
            opened = await self._range(key, first, last + 1 - first)
        except (Invalid, Corrupt) as error:
            if isinstance(error, NotFound) or self._plain is Plain.REJECT or await self.key_id(key) is not None:
                raise
            return await self._inner.get_up_to(key, position, length)
        if len(opened.chunks) <= last - first and not opened.is_end:
            raise _cut(key, first + len(opened.chunks))
        data = b"".join(opened.chunks)
        start = position - first * CHUNK_BYTES
        if start >= len(data):
            raise range_beyond(key, position, length)
        return data[start : start + length] if start or len(data) > length else data

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        stored = await self._inner.list(prefix, after, limit)
        found = [info for info in stored if info.key != MARKER]
        if len(found) < len(stored) == limit:
            found += await self._inner.list(prefix, stored[-1].key, 1)
        return list(await asyncio.gather(*map(self._listed, found)))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._inner.delete(keys)

    async def begin_parts(self, key: str, part_bytes: int) -> PartedPut:
        check_parts(key, part_bytes)
        if part_bytes % CHUNK_BYTES:
            raise Invalid(f"parts of {part_bytes} bytes for {key}, a multiple of {CHUNK_BYTES} is required")
        if self._plain is Plain.WRITE:
            return await self._inner.begin_parts(key, part_bytes)
        stored_bytes = part_bytes // CHUNK_BYTES * STORED_BYTES
        return EncryptedParts(self, await self._inner.begin_parts(key, stored_bytes), key, part_bytes)

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        return await self._inner.unfinished(prefix, limit)

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        await self._inner.abort_unfinished(unfinished)

    async def close(self) -> None:
        await self._inner.close()

    async def sealed(self, key: str, first: int, body: Sequence[Buffer], *, is_end: bool) -> Sequence[Buffer]:
        """The encrypted chunks of an object from number `first` on."""
        size = sum(map(len, body))
        nonces = self._entropy.take(chunks.chunk_count(size) * NONCE_BYTES)
        return await _computed(size, lambda: chunks.seal(self._keys, key, first, body, nonces, is_end=is_end))

    async def key_id(self, key: str) -> bytes | None:
        """The id of the key that an object is encrypted with; None if it is not encrypted."""
        try:
            head = await self._inner.get_up_to(key, 0, HEAD_BYTES)
        except RangeBeyond:  # an encrypted object is never empty
            return None
        return chunks.key_id_of(head) if chunks.is_sealed(head) and len(head) == HEAD_BYTES else None

    def name_of(self, key_id: bytes) -> str:
        """The name of a key for operators."""
        return self._keys.name_of(key_id)

    async def _range(self, key: str, first: int, count: int) -> Opened:
        stored = await self._inner.get_up_to(key, first * STORED_BYTES, count * STORED_BYTES)
        if not chunks.is_sealed(stored) and await self.key_id(key) is None:
            raise _not_encrypted(key)
        return await self._opened(key, first, stored)

    async def _opened(self, key: str, first: int, stored: bytes) -> Opened:
        return await _computed(len(stored), lambda: chunks.unseal(self._keys, key, first, stored))

    def _check_plain(self, key: str) -> None:
        if self._plain is Plain.REJECT:
            raise _not_encrypted(key)

    async def _listed(self, info: ObjectInfo) -> ObjectInfo:
        """The object with its plain size."""
        is_sealed = self._plain is Plain.REJECT or await self._is_sealed(info)
        size = chunks.plain_size(info.size_bytes) if is_sealed else info.size_bytes
        return ObjectInfo(info.key, size, info.etag, info.modified_ms)

    async def _is_sealed(self, info: ObjectInfo) -> bool:
        version = (info.key, info.etag)
        if version not in self._known:
            try:
                async with self._heads:
                    found = await self.key_id(info.key) is not None
            except NotFound:  # deleted since the listing
                return False
            if len(self._known) >= HEADS_KNOWN_MAX:
                self._known.clear()
            self._known[version] = found
        return self._known[version]


class EncryptedParts:
    """Encrypts each part of an upload.

    A full part may be the last one, which is known at the end only. Then an empty last chunk follows it.
    """

    def __init__(self, store: EncryptedStore, inner: PartedPut, key: str, part_bytes: int) -> None:
        self._store = store
        self._inner = inner
        self._key = key
        self._part_bytes = part_bytes
        self._sizes = PartSizes(key, part_bytes)

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        size = self._sizes.check(number, body)
        first = number * (self._part_bytes // CHUNK_BYTES)
        sealed = await self._store.sealed(self._key, first, body, is_end=size < self._part_bytes)
        await self._inner.put_part(number, sealed)
        self._sizes.record(number, size)

    async def complete(self) -> str:
        full, rest = divmod(self._sizes.check_complete(), self._part_bytes)
        if not rest:
            end = await self._store.sealed(self._key, full * (self._part_bytes // CHUNK_BYTES), [], is_end=True)
            await self._inner.put_part(full, end)
        return await self._inner.complete()

    async def abort(self) -> None:
        await self._inner.abort()


def _cut(key: str, count: int) -> Corrupt:
    return Corrupt(f"object {key} is cut: it ends after {count} chunks, without its last one")


def _not_encrypted(key: str) -> Invalid:
    return Invalid(f"object {key} is not encrypted; encryption_plain=read allows it")


async def _computed(size_bytes: int, work: Callable[[], Result]) -> Result:
    return work() if size_bytes <= INLINE_BYTES_MAX else await asyncio.to_thread(work)
