"""Answers that clients have not taken yet, over all connections, so that slow readers cannot fill the memory."""

import asyncio


class UnsentBytes:
    """How many bytes of answers wait for their clients; fetches read nothing new while they are too many."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._room = asyncio.Event()
        self._room.set()
        self.held_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether no more may be read for now."""
        return self.held_bytes >= self._bytes_max

    def change(self, delta_bytes: int) -> None:
        """A connection holds so many bytes more, or less, than it said before."""
        self.held_bytes += delta_bytes
        if self.is_spent:
            self._room.clear()
        else:
            self._room.set()

    async def until_room(self, timeout_s: float) -> bool:
        """Wait until more may be read; false if that is not so within the time."""
        if self.is_spent:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._room.wait()
            except TimeoutError:
                return False
        return True
