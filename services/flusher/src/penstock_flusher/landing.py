"""The landing store of one lane: whether a segment goes there now, and how long the flusher waits for it.

A segment that the landing store does not store in time goes to the final store under a new id. If the
first put has an effect later, its object is an orphan. No commit names it, and a janitor deletes it.
"""

import math
from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts.errors import PenstockError
from penstock.objectstore import Full
from penstock_flusher.hedged_puts import SegmentStore

log = structlog.get_logger()

BURST_S = 1.0  # so much of the rate may be used at once
DEGRADED = "landing"  # the name of the problem in the health report


class LandingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The time that a landing store may cost."""

    # Of one put with its retries, and in addition for its bytes. A put to S3 Express takes 15 ms.
    put_s_max: float = 0.5
    bytes_per_s_min: float = 4 * 1024 * 1024
    # Without puts after one that failed. So an absent store delays few segments, as a segment waits for earlier ones.
    pause_s: float = 30.0


LANDING_LIMITS = LandingLimits()


class Landing:
    """The use of the landing store by one lane. It reports when segments begin and cease to go elsewhere."""

    def __init__(
        self,
        store: SegmentStore,
        *,
        bytes_per_second_max: float = math.inf,
        limits: LandingLimits = LANDING_LIMITS,
        set_degraded: Callable[[str, str], None] = lambda _name, _reason: None,
    ) -> None:
        self.store = store
        self._bytes_per_second_max = bytes_per_second_max
        self._limits = limits
        self._set_degraded = set_degraded
        self._used_until_s = -math.inf  # when the rate has paid for all segments so far
        self._paused_until_s = -math.inf
        self._reason = ""

    def take(self, size_bytes: int, now_s: float) -> bool:
        """Whether a segment of this size may go there now; a segment of any size may after a pause."""
        if now_s < self._paused_until_s:
            return False
        if self._used_until_s - now_s > BURST_S:
            self._report("landing_store_full", "its rate is reached")
            return False
        self._used_until_s = max(self._used_until_s, now_s) + size_bytes / self._bytes_per_second_max
        return True

    def timeout_s(self, size_bytes: int) -> float:
        """The time that a put of so many bytes may take."""
        return self._limits.put_s_max + size_bytes / self._limits.bytes_per_s_min

    def record_stored(self) -> None:
        """Record that it stored a segment."""
        if self._reason:
            log.info("landing_store_used_again")
            self._set_degraded(DEGRADED, "")
        self._reason = ""

    def record_failed(self, error: PenstockError | TimeoutError, now_s: float) -> None:
        """Record that it did not store a segment."""
        if isinstance(error, Full):
            self._report("landing_store_full", str(error))
            return
        self._paused_until_s = now_s + self._limits.pause_s
        reason = str(error) or "it does not answer in time"
        self._report("landing_store_unavailable", reason)
        self._set_degraded(DEGRADED, f"segments go to the final store, because the landing store fails: {reason}")

    def _report(self, event: str, reason: str) -> None:
        if not self._reason:
            log.warning(event, reason=reason)
        self._reason = reason
