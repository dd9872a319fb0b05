"""Decides whether a client sends an incomplete frame too slowly. Pure."""

from penstock_gateway.server.limits import ConnectionLimits


class Progress:
    """The received bytes of one connection's incomplete frame, compared over a time in which it was read."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self._frame = -1
        self._received_bytes = 0

    def begin(self, now_s: float, frame: int, received_bytes: int) -> None:
        """Measure from now on."""
        self._since_s, self._frame, self._received_bytes = now_s, frame, received_bytes

    def is_too_slow(
        self, now_s: float, frame: int, received_bytes: int, limits: ConnectionLimits, *, is_contended: bool
    ) -> bool:
        """Whether too little of this frame came since the measurement began; it begins again with each other frame.

        While other clients wait for memory, each frame needs a minimal rate. Else it only needs a byte at times.
        """
        if frame != self._frame:
            self.begin(now_s, frame, received_bytes)
            return False
        elapsed_s, gained_bytes = now_s - self._since_s, received_bytes - self._received_bytes
        if is_contended and elapsed_s >= limits.contended_frame_s_max:
            if gained_bytes < elapsed_s * limits.contended_bytes_per_second_min:
                return True
            self.begin(now_s, frame, received_bytes)
            return False
        if gained_bytes and not is_contended:
            self.begin(now_s, frame, received_bytes)
            return False
        return elapsed_s > limits.partial_frame_s_max
