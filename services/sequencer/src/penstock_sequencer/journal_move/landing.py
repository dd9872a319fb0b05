"""Copies the objects of a landing store that is at the NATS servers of the journal (ADR 0045)."""

import asyncio
from collections.abc import Callable

from penstock.contracts.errors import Invalid
from penstock.objectstore import AlreadyExists, Full, NotFound, ObjectStore

COPIES_PARALLEL_MAX = 16


class LandingCopy:
    """The copy of one landing store; both stores are open."""

    def __init__(self, source: ObjectStore, target: ObjectStore, *, report: Callable[[str], None]) -> None:
        self._source = source
        self._target = target
        self._report = report
        self._copied: set[str] = set()

    async def count(self) -> tuple[int, int]:
        """Objects and bytes in the old landing store."""
        sizes = [size_bytes for _, size_bytes in await _contents(self._source)]
        return len(sizes), sum(sizes)

    async def copy(self) -> None:
        """Copy the objects that the new store does not have; segments never change, so a copy stays right.

        `Invalid` if the new store has no room, `Unavailable` if a store does not answer.
        """
        self._copied = self._copied or {key for key, _ in await _contents(self._target)}
        missing = [key for key, _ in await _contents(self._source) if key not in self._copied]
        if missing:
            self._report(f"copying {len(missing)} objects of the landing store")
        waiting = iter(missing)

        async def work() -> None:
            for key in waiting:
                await self._copy(key)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(missing), COPIES_PARALLEL_MAX)):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _copy(self, key: str) -> None:
        try:
            await self._target.put(key, [await self._source.get(key)])
        except NotFound:
            return  # a janitor has just deleted it
        except AlreadyExists:
            pass
        except Full as error:
            raise Invalid(f"the new landing store has no room: {error}") from error
        self._copied.add(key)


async def _contents(store: ObjectStore) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    after = ""
    while page := await store.list("", after):
        found += [(info.key, info.size_bytes) for info in page]
        after = page[-1].key
    return found
