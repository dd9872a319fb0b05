"""The byte budget: a limit on unanswered bytes in a flusher, and the throttle of senders before it is full."""

# Measured: the memory of a small batch without its bytes, that is, the objects of its metadata, views and results.
BATCH_OVERHEAD_BYTES = 1_024
THROTTLE_MS_MAX = 1_000  # when the budget is full; long enough to have an effect, short enough to recover from


class Budget:
    """The bytes of requests that are not yet answered: arriving, buffered, uploading and committing."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0

    def take(self, count: int) -> bool:
        """Add `count` bytes if they fit; return whether they do."""
        if self.held_bytes + count > self.bytes_max:
            return False
        self.held_bytes += count
        return True

    def release(self, count: int) -> None:
        """Subtract `count` bytes."""
        self.held_bytes -= count
        assert self.held_bytes >= 0, f"{-self.held_bytes} bytes released that were never taken"

    def throttle_ms(self) -> int:
        """The pause for a sender: zero up to half of the budget, then increasing."""
        over_bytes = 2 * self.held_bytes - self.bytes_max
        return max(0, THROTTLE_MS_MAX * over_bytes // self.bytes_max)
