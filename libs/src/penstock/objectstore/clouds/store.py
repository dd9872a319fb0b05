"""All verbs of an object store over obstore; uploads in parts are those of the cloud."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import obstore

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, PenstockError
from penstock.objectstore.clouds.errors import translated
from penstock.objectstore.errors import EtagMismatch, NotDeleted, NotFound, RangeBeyond, range_beyond
from penstock.objectstore.limits import CloudLimits
from penstock.objectstore.store import (
    DELETE_KEYS_MAX,
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    PartedPut,
    Unfinished,
    check_key,
    check_keys,
    check_listing,
    check_parts,
    check_range,
    copy_into,
)
from penstock.runtime.clock import Entropy

# Objects of unfinished uploads; keys cannot begin with a dot. The mark is in no key, and sorts below all their letters.
UPLOADS = ".uploads/"
NAME_MARK = "!"
BEGUN = "begun"
NAME_BYTES = 16
_UNSORTED = "the store does not list keys in order; an Azure account must not have a hierarchical namespace"
# The letters of keys in the order of stores, without the slash.
_LETTERS = "+-.0123456789=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"


class Upload(msgspec.Struct, frozen=True):
    """One upload in parts: the key of its object, its name, and the size of its parts."""

    key: str
    name: str
    part_bytes: int

    @property
    def folder(self) -> str:
        """The prefix of its hidden objects."""
        return f"{UPLOADS}{self.key}{NAME_MARK}{self.name}/"


BeginParts = Callable[["Objects", Upload], Awaitable[PartedPut]]


class Objects:
    """Objects by name below the prefix of a store, hidden ones too; requests are limited and errors translated."""

    def __init__(self, client: Any, prefix: str, limits: CloudLimits) -> None:
        self.client = client
        self.prefix = prefix
        self._deletes = asyncio.Semaphore(limits.deletes_parallel_max)
        self._reads = asyncio.Semaphore(limits.connections_max)
        self._writes = asyncio.Semaphore(limits.connections_max)

    async def put(self, name: str, body: Sequence[Buffer], mode: Any) -> str:
        """Store the buffers in one request, and return the etag."""
        async with self._writes:
            with translated(name):
                # Multipart uploads would not be atomic with the condition.
                result = await obstore.put_async(
                    self.client, self.prefix + name, [*filter(len, body)] or b"", mode=mode, use_multipart=False
                )
        return plain_etag(result["e_tag"])

    async def read(self, name: str, position: int | None = None, length: int = 0) -> Any:
        """The bytes of an object, or of its range up to its end, in the memory of obstore."""
        async with self._reads:
            with translated(name):
                if position is not None:
                    return await obstore.get_range_async(self.client, self.prefix + name, start=position, length=length)
                result = await obstore.get_async(self.client, self.prefix + name)
                return await result.bytes_async()

    async def head(self, name: str) -> Any:
        """The size, etag, version and time of an object."""
        async with self._reads:
            with translated(name):
                return await obstore.head_async(self.client, self.prefix + name)

    async def listed(self, prefix: str, above: str, chunk: int) -> AsyncIterator[ObjectInfo]:
        """All objects whose name has this prefix and is above `above`, in the order of names."""
        folder = (self.prefix + prefix).rpartition("/")[0]
        offset = max(above, _just_before(prefix))
        last = ""
        with translated(f"list of {prefix or 'all objects'}"):
            stream = obstore.list(
                self.client, folder or None, offset=self.prefix + offset if offset else None, chunk_size=chunk
            )
            async for metas in stream:
                for meta in metas:
                    name = meta["path"].removeprefix(self.prefix)
                    if name <= last:
                        raise Invalid(_UNSORTED)
                    last = name
                    if name.startswith(prefix):
                        if name > above:
                            yield _info(name, meta)
                    elif name > prefix:
                        return

    async def delete(self, name: str) -> None:
        """Delete one object; an absent one counts as deleted."""
        async with self._deletes:
            try:
                with translated(name):
                    await obstore.delete_async(self.client, self.prefix + name)
            except NotFound:
                return

    async def delete_all(self, prefix: str) -> None:
        """Delete all objects whose name has this prefix."""
        while names := [info.key async for info in self.listed(prefix, "", DELETE_KEYS_MAX)]:
            for outcome in await asyncio.gather(*map(self.delete, names), return_exceptions=True):
                if outcome is not None:
                    raise outcome


class CloudStore:
    """One bucket or container below a prefix."""

    def __init__(
        self,
        client: Any,
        prefix: str,
        begin_parts: BeginParts,
        *,
        entropy: Entropy,
        limits: CloudLimits,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._objects = Objects(client, prefix, limits)
        self._begin_parts = begin_parts
        self._entropy = entropy
        self._close = close

    @property
    def has_local_reads(self) -> bool:
        return False

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        check_key(key)
        if if_match is None:
            return await self._objects.put(key, body, "create")
        # The condition of Google is a generation, which listings do not have. The put is still atomic: it has the
        # condition that the version which the etag named here is still the newest.
        try:
            meta = await self._objects.head(key)
            if plain_etag(meta["e_tag"]) != if_match:
                raise EtagMismatch(f"object with etag {meta['e_tag']}, expected {if_match}: {key}")
            version = {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}
            return await self._objects.put(key, body, version)
        except NotFound as error:
            raise EtagMismatch(f"object absent, expected etag {if_match}: {key}") from error

    async def get(self, key: str) -> bytes:
        return bytes(await self._objects.read(check_key(key)))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return bytes(await self._exactly(key, position, length))

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        copy_into(buffer, await self._exactly(key, position, len(buffer)))

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        return bytes(await self._up_to(key, position, length))

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        check_listing(prefix, after, limit)
        found: Listing = []
        async for info in self._objects.listed(prefix, after, limit):
            if not info.key.startswith(UPLOADS):
                found.append(info)
            if len(found) == limit:
                break
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        outcomes = await asyncio.gather(*map(self._objects.delete, keys), return_exceptions=True)
        failed = {key: outcome for key, outcome in zip(keys, outcomes, strict=True) if outcome is not None}
        for outcome in failed.values():
            if not isinstance(outcome, PenstockError):
                raise outcome
        if failed:
            rejected = [key for key, outcome in failed.items() if isinstance(outcome, Invalid)]
            raise NotDeleted(str(next(iter(failed.values()))), list(failed), rejected)

    async def begin_parts(self, key: str, part_bytes: int) -> PartedPut:
        check_parts(key, part_bytes)
        upload = Upload(key, self._entropy.take(NAME_BYTES).hex(), part_bytes)
        await self._objects.put(upload.folder + BEGUN, [], "create")
        return await self._begin_parts(self._objects, upload)

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        """As in every store; what a late part of an aborted upload left is an unfinished upload too."""
        check_listing(prefix, "", limit)
        found: dict[tuple[str, str], Unfinished] = {}
        async for info in self._objects.listed(UPLOADS + prefix, "", LIST_LIMIT_MAX):
            folder, _, part = info.key.removeprefix(UPLOADS).rpartition("/")
            key, _, name = folder.rpartition(NAME_MARK)
            if len(found) == limit and (key, name) not in found:
                break
            if part == BEGUN or (key, name) not in found:
                found[key, name] = Unfinished(key, name, info.modified_ms)
        return list(found.values())

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        await abort_upload(self._objects, Upload(unfinished.key, unfinished.name, 0))

    async def close(self) -> None:
        if self._close is not None:
            await self._close()

    async def _exactly(self, key: str, position: int, length: int) -> Buffer:
        data = await self._up_to(key, position, length)
        if len(data) != length:
            raise range_beyond(key, position, length)
        return data

    async def _up_to(self, key: str, position: int, length: int) -> Buffer:
        check_range(key, position, length)
        try:
            data: Buffer = memoryview(await self._objects.read(key, position, length))
        except RangeBeyond as error:
            raise range_beyond(key, position, length) from error
        if not 1 <= len(data) <= length:
            raise range_beyond(key, position, length)
        return data


async def abort_upload(objects: Objects, upload: Upload) -> None:
    """Delete the hidden objects of an upload, its first one first, so that its owner fails from now on."""
    await objects.delete(upload.folder + BEGUN)
    await objects.delete_all(upload.folder)


async def check_begun(objects: Objects, upload: Upload) -> None:
    """`NotFound` if the upload is complete or aborted."""
    try:
        await objects.head(upload.folder + BEGUN)
    except NotFound as error:
        raise NotFound(f"no upload in progress: {upload.key}") from error


def plain_etag(etag: str | None) -> str:
    """The etag without its quotes, which Azure leaves out in listings."""
    return (etag or "").strip('"')


def _info(name: str, meta: Any) -> ObjectInfo:
    modified_ms = int(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(key=name, size_bytes=meta["size"], etag=plain_etag(meta["e_tag"]), modified_ms=modified_ms)


def _just_before(prefix: str) -> str:
    """A name below all names with this prefix, and near them; "" if the folder is a good start."""
    stem, last = prefix[:-1], prefix[-1:]
    place = _LETTERS.find(last)
    if not last or last == "/" or place <= 0:
        return ""
    return stem + _LETTERS[place - 1] + _LETTERS[-1]
