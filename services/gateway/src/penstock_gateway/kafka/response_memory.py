"""The memory of answers that clients have not taken yet, limited over all connections because of slow clients."""

import asyncio

from penstock_gateway.kafka.shared_limit import Share, SharedLimit

# Catch-up reads stop while half of the memory is used; tailing reads continue.
CATCH_UP_FRACTION = 2


class ResponseMemory:
    """Counts the bytes of answers that wait for their clients; fetches do not read while there are too many."""

    def __init__(self, limit: int | Share) -> None:
        """`limit` in bytes, or a share of one that other clusters use, too."""
        self._share = limit if isinstance(limit, Share) else SharedLimit(limit).join()
        self._tailing_gate = _open_gate()
        self._catch_up_gate = _open_gate()
        self.held_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be read for now."""
        return self._share.is_spent()

    def has_room(self, *, is_catch_up: bool) -> bool:
        """Whether more may be read."""
        return self._gate(is_catch_up=is_catch_up).is_set()

    def change(self, delta_bytes: int) -> None:
        """Record that a connection holds more bytes than before, or fewer."""
        self.held_bytes += delta_bytes
        self._share.used = self.held_bytes
        self.look_again()

    def look_again(self) -> None:
        """Record what other clusters of the process use now."""
        _set_gate(self._tailing_gate, is_open=not self.is_spent)
        _set_gate(self._catch_up_gate, is_open=not self._share.is_spent(CATCH_UP_FRACTION))

    async def wait(self, timeout_s: float, *, is_catch_up: bool = False) -> bool:
        """Wait until more may be read; false after a time-out."""
        gate = self._gate(is_catch_up=is_catch_up)
        if not gate.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await gate.wait()
            except TimeoutError:
                return False
        return True

    def _gate(self, *, is_catch_up: bool) -> asyncio.Event:
        return self._catch_up_gate if is_catch_up else self._tailing_gate


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


def _set_gate(gate: asyncio.Event, *, is_open: bool) -> None:
    if is_open:
        gate.set()
    else:
        gate.clear()
