"""Decides when freed memory goes back to the kernel: seldom, after large requests, when none is left. Pure.

The C library keeps freed blocks, because that saves time with each message (`tune_malloc`). After a few large requests
a gateway would keep for ever what they needed together.
"""

from penstock_gateway.server.limits import MemoryReleaseLimits


class MemoryRelease:
    """The large reservations of one gateway since its memory was given back."""

    def __init__(self, limits: MemoryReleaseLimits) -> None:
        self._limits = limits
        self._released_at_bytes = 0
        self._released_s = float("-inf")

    def is_due(self, *, granted_bytes: int, reserved_bytes: int, now_s: float) -> bool:
        """Whether to give memory back now; `granted_bytes` counts all reservations since the start."""
        limits = self._limits
        if reserved_bytes or granted_bytes - self._released_at_bytes < limits.granted_bytes_min:
            return False
        if now_s - self._released_s < limits.interval_s:
            return False
        self._released_at_bytes, self._released_s = granted_bytes, now_s
        return True
