"""Counts the objects of a store by the key that they are encrypted with."""

import asyncio

import msgspec

from penstock.objectstore.encryption.store import HEADS_PARALLEL_MAX, EncryptedStore
from penstock.objectstore.errors import NotFound
from penstock.objectstore.store import ObjectInfo

NO_KEY = "not encrypted"


class KeyUse(msgspec.Struct):
    """The objects that one key is needed for."""

    objects: int = 0
    size_bytes: int = 0  # of the plain objects


async def keys_in_use(store: EncryptedStore, prefix: str) -> dict[str, KeyUse]:
    """The use of each key by the objects with this prefix, by its name; one small read per object."""
    used: dict[str, KeyUse] = {}
    after = ""
    parallel = asyncio.Semaphore(HEADS_PARALLEL_MAX)

    async def count(info: ObjectInfo) -> None:
        try:
            async with parallel:
                key_id = await store.key_id(info.key)
        except NotFound:  # deleted since the listing
            return
        use = used.setdefault(NO_KEY if key_id is None else store.name_of(key_id), KeyUse())
        use.objects += 1
        use.size_bytes += info.size_bytes

    while page := await store.list(prefix, after):
        await asyncio.gather(*map(count, page))
        after = page[-1].key
    return used
