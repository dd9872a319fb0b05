"""Whether the landing store takes one more segment: within a rate, because the journal is on the same disks."""

import math

import structlog

log = structlog.get_logger()

BURST_S = 1.0  # so much of the rate may be used at once


class Landing:
    """The use of the landing store by one flusher. It logs when segments begin and cease to go elsewhere."""

    def __init__(self, bytes_per_second_max: float) -> None:
        self._bytes_per_second_max = bytes_per_second_max
        self._used_until_s = -math.inf  # when the rate has paid for all segments so far
        self._reason = ""

    def take(self, size_bytes: int, now_s: float) -> bool:
        """Whether a segment of this size may go there now; a segment of any size may after a pause."""
        if self._used_until_s - now_s > BURST_S:
            self._report("its rate is reached")
            return False
        self._used_until_s = max(self._used_until_s, now_s) + size_bytes / self._bytes_per_second_max
        return True

    def record_stored(self) -> None:
        """Record that it stored a segment."""
        self._report("")

    def record_full(self, reason: str) -> None:
        """Record that it had no room for a segment."""
        self._report(reason)

    def _report(self, reason: str) -> None:
        if reason and not self._reason:
            log.warning("landing_store_full", reason=reason)
        elif self._reason and not reason:
            log.info("landing_store_has_room")
        self._reason = reason
