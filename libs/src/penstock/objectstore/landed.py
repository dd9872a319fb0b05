"""Two stores as one: landed segments are in the landing store, all other objects in the final store (ADR 0045, 0056).

The key decides. So every process that has the store's address finds each object, and a listing has the objects of both.
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import islice

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Unavailable
from penstock.objectstore.errors import NotDeleted
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    ObjectStore,
    PartedPut,
    Unfinished,
    check_keys,
)


class LandedStore:
    """The final store, with a landing store for the objects whose keys are landing keys."""

    def __init__(
        self,
        final: ObjectStore,
        landing: ObjectStore,
        is_landing_key: Callable[[str], bool],
        may_list_landing: Callable[[str], bool] = lambda _prefix: True,
    ) -> None:
        """`may_list_landing`: whether a listing with this prefix may have landing keys."""
        self._final = final
        self._landing = landing
        self._is_landing_key = is_landing_key
        self._may_list_landing = may_list_landing

    @property
    def has_local_reads(self) -> bool:
        return self._final.has_local_reads and self._landing.has_local_reads

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        return await self._of(key).put(key, body, if_match=if_match)

    async def get(self, key: str) -> bytes:
        return await self._of(key).get(key)

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return await self._of(key).get_range(key, position, length)

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        await self._of(key).get_range_into(key, position, buffer)

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        return await self._of(key).get_up_to(key, position, length)

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        """As in every store; a listing without landing keys does not need the landing store."""
        final = await self._final.list(prefix, after, limit)
        landing = await self._landing.list(prefix, after, limit) if self._may_list_landing(prefix) else []
        return [*islice(heapq.merge(final, landing, key=_key), limit)]

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        landing = [key for key in keys if self._is_landing_key(key)]
        final = [key for key in keys if not self._is_landing_key(key)]
        failures = []
        for store, part in ((self._final, final), (self._landing, landing)):
            try:
                if part:
                    await store.delete(part)
            except NotDeleted as error:
                failures.append(error)
            except Unavailable as error:
                failures.append(NotDeleted(str(error), part))
        if failures:
            left = [key for each in failures for key in each.keys]
            raise NotDeleted(failures[0].why, left, [key for each in failures for key in each.rejected])

    async def begin_parts(self, key: str, part_bytes: int) -> PartedPut:
        return await self._of(key).begin_parts(key, part_bytes)

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        final = await self._final.unfinished(prefix, limit)
        landing = await self._landing.unfinished(prefix, limit)
        return sorted((*final, *landing), key=lambda each: (each.key, each.name))[:limit]

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        await self._of(unfinished.key).abort_unfinished(unfinished)

    async def close(self) -> None:
        await self._landing.close()
        await self._final.close()

    def _of(self, key: str) -> ObjectStore:
        return self._landing if self._is_landing_key(key) else self._final


def _key(info: ObjectInfo) -> str:
    return info.key
