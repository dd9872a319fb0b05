"""Those who wait for something to happen to one of many things, woken by its name."""

import asyncio


class Waiting:
    """Waiters by name; nothing is kept for a name that nobody waits for."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[asyncio.Future[None], None]] = {}

    async def wait(self, name: str) -> None:
        """Return at the next `wake` for the name, or at `wake_all`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(name, {})[waiter] = None
        try:
            await waiter
        finally:
            self._remove(name, waiter)

    def wake(self, name: str) -> None:
        """Wake all who wait for the name now."""
        for waiter in self._waiters.pop(name, ()):
            if not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        """Wake everybody."""
        for name in list(self._waiters):
            self.wake(name)

    def _remove(self, name: str, waiter: asyncio.Future[None]) -> None:
        others = self._waiters.get(name)
        if others is not None:
            others.pop(waiter, None)
            if not others:
                del self._waiters[name]
