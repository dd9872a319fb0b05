"""A number of bytes that may be in use at once; a task that wants more than are free waits in a queue."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """First come, first served. A claim beyond the whole budget is granted when nothing else is in use."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """The bytes that a new claim gets at once: none while another claim waits."""
        return 0 if self._waiting else self._bytes_max - self.used_bytes

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Use so many bytes of the budget for the length of a block."""
        lease_bytes = min(size_bytes, self._bytes_max)
        await self._acquire(lease_bytes)
        try:
            yield
        finally:
            self.used_bytes -= lease_bytes
            self._grant()

    async def _acquire(self, lease_bytes: int) -> None:
        if not self._waiting and self.used_bytes + lease_bytes <= self._bytes_max:
            self.used_bytes += lease_bytes
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (lease_bytes, granted)
        self._waiting.append(entry)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._waiting.remove(entry)
            else:
                self.used_bytes -= lease_bytes
            self._grant()
            raise

    def _grant(self) -> None:
        while self._waiting:
            lease_bytes, granted = self._waiting[0]
            if granted.cancelled() or self.used_bytes + lease_bytes > self._bytes_max:
                return  # a cancelled task leaves the queue when it wakes up, and then grants to those behind it
            self._waiting.popleft()
            self.used_bytes += lease_bytes
            granted.set_result(None)
