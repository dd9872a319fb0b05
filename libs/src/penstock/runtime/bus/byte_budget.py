"""A number of bytes that may be in use at once; who wants more than are free waits in line."""

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
        """What can be had at once: nothing while somebody waits."""
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
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (lease_bytes, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(entry)
            else:
                self.used_bytes -= lease_bytes
            self._grant()
            raise

    def _grant(self) -> None:
        while self._waiting:
            lease_bytes, turn = self._waiting[0]
            if turn.cancelled() or self.used_bytes + lease_bytes > self._bytes_max:
                return  # who was cancelled leaves the line as soon as he is awake, and grants what comes then
            self._waiting.popleft()
            self.used_bytes += lease_bytes
            turn.set_result(None)
