"""A limit on the bytes in use at once. A task that needs more than are free waits in a queue."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """First come, first served. A reservation above the whole budget is granted when nothing else is in use."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """The bytes that a new reservation gets at once: none while another one waits."""
        return 0 if self._waiting else self._bytes_max - self.used_bytes

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Reserve so many bytes of the budget for the length of a block."""
        reserved_bytes = min(size_bytes, self._bytes_max)
        await self._reserve(reserved_bytes)
        try:
            yield
        finally:
            self.used_bytes -= reserved_bytes
            self._grant()

    async def _reserve(self, reserved_bytes: int) -> None:
        if not self._waiting and self.used_bytes + reserved_bytes <= self._bytes_max:
            self.used_bytes += reserved_bytes
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (reserved_bytes, granted)
        self._waiting.append(entry)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._waiting.remove(entry)
            else:
                self.used_bytes -= reserved_bytes
            self._grant()
            raise

    def _grant(self) -> None:
        while self._waiting:
            reserved_bytes, granted = self._waiting[0]
            if granted.cancelled() or self.used_bytes + reserved_bytes > self._bytes_max:
                return  # a cancelled task leaves the queue when it wakes up, and then grants to the next ones
            self._waiting.popleft()
            self.used_bytes += reserved_bytes
            granted.set_result(None)
