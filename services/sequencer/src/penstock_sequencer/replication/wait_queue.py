"""A queue of waiting tasks by name: each waits for the next event of one name."""

import asyncio


class WaitQueue:
    """Waiting tasks by name; a name without waiting tasks takes no memory."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[asyncio.Future[None], None]] = {}

    def __len__(self) -> int:
        """How many names have waiting tasks."""
        return len(self._waiters)

    async def wait(self, name: str) -> None:
        """Return at the next `wake` of the name, or at `wake_all`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(name, {})[waiter] = None
        try:
            await waiter
        finally:
            self._remove(name, waiter)

    def wake(self, name: str) -> None:
        """Wake all tasks that wait for the name."""
        for waiter in self._waiters.pop(name, ()):
            if not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        """Wake all waiting tasks."""
        for name in list(self._waiters):
            self.wake(name)

    def _remove(self, name: str, waiter: asyncio.Future[None]) -> None:
        others = self._waiters.get(name)
        if others is not None:
            others.pop(waiter, None)
            if not others:
                del self._waiters[name]
