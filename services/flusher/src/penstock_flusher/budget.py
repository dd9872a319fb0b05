"""The byte budget: how much a flusher may hold unanswered, and how it throttles senders before the budget is full."""

# Memory of a small batch beside its bytes: its metadata, views and results as objects, as measured.
BATCH_OVERHEAD_BYTES = 1_024
THROTTLE_MS_MAX = 1_000  # asked for when the budget is full; long enough to matter, short enough to recover from


class Budget:
    """Bytes held for requests that are not answered yet: arriving, buffered, uploading and committing."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0

    def take(self, count: int) -> bool:
        """Hold `count` bytes more, if they fit."""
        if self.held_bytes + count > self.bytes_max:
            return False
        self.held_bytes += count
        return True

    def release(self, count: int) -> None:
        """Hold `count` bytes less."""
        self.held_bytes -= count
        assert self.held_bytes >= 0, f"{-self.held_bytes} bytes released that were never taken"

    def throttle_ms(self) -> int:
        """How long a sender should pause: nothing up to half of the budget, then more and more."""
        over_bytes = 2 * self.held_bytes - self.bytes_max
        return max(0, THROTTLE_MS_MAX * over_bytes // self.bytes_max)
