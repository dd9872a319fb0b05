"""One load for a key at a time, shared by all tasks that ask for it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SingleFlight(Generic[Key, Value]):
    """Loads that several tasks wait for while they run.

    All tasks that wait for a load get its value or its error. A task that stops waiting does not end the load for
    other tasks. Only a load begun by `share` ends with its last waiting task. Nothing is kept once a load is over.
    """

    def __init__(self) -> None:
        self._flying: dict[Key, asyncio.Task[Value]] = {}
        self._sharers: Counter[asyncio.Task[Value]] = Counter()

    def __len__(self) -> int:
        return len(self._flying)

    def __contains__(self, key: Key) -> bool:
        return key in self._flying

    def begin(self, key: Key, load: Callable[[], Coroutine[Any, Any, Value]]) -> asyncio.Task[Value]:
        """The load that runs for `key`, or a new one that `load` begins. The caller must shield it when it waits."""
        task = self._flying.get(key)
        if task is None:
            task = self._flying[key] = asyncio.create_task(load())
            task.add_done_callback(lambda done: self._landed(key, done))
        return task

    async def get(self, key: Key, load: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """The value of the load that runs for `key`, or of a new one that `load` begins."""
        return await asyncio.shield(self.begin(key, load))

    async def share(self, key: Key, load: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """As `get`, but the load is cancelled when no task waits for it any more.

        All callers of one key must use `share`, or none: `get` does not count its callers.
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
            task.exception()  # read, because asyncio would warn about a load without waiters
