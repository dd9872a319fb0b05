"""One load for a key at a time, however many tasks ask for it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SingleFlight(Generic[Key, Value]):
    """Loads that are shared while they run.

    All tasks that wait for a load get its value or its error. A task that stops waiting does not end the load for the
    others nor, unless the load is shared, for later tasks. Nothing is kept once a load is over.
    """

    def __init__(self) -> None:
        self._flying: dict[Key, asyncio.Task[Value]] = {}
        self._sharers: Counter[asyncio.Task[Value]] = Counter()

    def __len__(self) -> int:
        return len(self._flying)

    def __contains__(self, key: Key) -> bool:
        return key in self._flying

    def begin(self, key: Key, load: Callable[[], Coroutine[Any, Any, Value]]) -> asyncio.Task[Value]:
        """The load that runs for `key`, or a new one that `load` begins; a task that waits for it shields it."""
        task = self._flying.get(key)
        if task is None:
            task = self._flying[key] = asyncio.create_task(load())
            task.add_done_callback(lambda done: self._landed(key, done))
        return task

    async def get(self, key: Key, load: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """The value of the load that runs for `key`, or of a new one that `load` begins."""
        return await asyncio.shield(self.begin(key, load))

    async def share(self, key: Key, load: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """As `get`, for a load that is of no use once no task waits for it: then it is cancelled.

        All tasks share a key, or none does: `get` does not count its callers.
        """
        task = self.begin(key, load)
        self._sharers[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._sharers[task] -= 1
            if not self._sharers[task]:
                del self._sharers[task]
                if not task.done():
                    del self._flying[key]  # the next task begins a new load
                    task.cancel()
                    await asyncio.wait([task])

    async def close(self) -> None:
        """End all loads."""
        flying = list(self._flying.values())
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)

    def _landed(self, key: Key, task: asyncio.Task[Value]) -> None:
        if self._flying.get(key) is task:
            del self._flying[key]
        if not task.cancelled():
            task.exception()  # its waiters have it; without waiters it needs no warning
