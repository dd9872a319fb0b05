"""Answers that clients have not taken yet, over all connections, so that slow readers cannot fill the memory."""

import asyncio

HISTORY_SHARE = 2  # while one part in so many is used up, whoever replays reads nothing more; who follows the end does


class ResponseMemory:
    """How many bytes of answers wait for their clients; fetches read nothing new while they are too many."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._room = _open_gate()
        self._history_room = _open_gate()
        self.held_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether no more may be read for now."""
        return self.held_bytes >= self._bytes_max

    def has_room(self, *, is_history: bool) -> bool:
        """Whether more may be read."""
        return self._gate(is_history=is_history).is_set()

    def change(self, delta_bytes: int) -> None:
        """A connection holds so many bytes more, or less, than it said before."""
        self.held_bytes += delta_bytes
        _turn(self._room, is_open=not self.is_spent)
        _turn(self._history_room, is_open=self.held_bytes * HISTORY_SHARE < self._bytes_max)

    async def until_room(self, timeout_s: float, *, is_history: bool = False) -> bool:
        """Wait until more may be read; false if that is not so within the time."""
        gate = self._gate(is_history=is_history)
        if not gate.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await gate.wait()
            except TimeoutError:
                return False
        return True

    def _gate(self, *, is_history: bool) -> asyncio.Event:
        return self._history_room if is_history else self._room


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


def _turn(gate: asyncio.Event, *, is_open: bool) -> None:
    if is_open:
        gate.set()
    else:
        gate.clear()
