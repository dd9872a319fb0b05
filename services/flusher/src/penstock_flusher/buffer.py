"""The active buffer: decides what becomes a segment together and when; it knows no clock and does no I/O."""

import enum
import math
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec


class Weighed(Protocol):
    """What the buffer must know of a fragment: its record bytes and its batches."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def batch_count(self) -> int: ...


Fragment = TypeVar("Fragment", bound=Weighed)


class Reason(enum.StrEnum):
    """Why a buffer closes."""

    SIZE = "size"
    TIMER = "timer"
    QUIET = "quiet"
    DRAIN = "drain"


class BufferLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a buffer closes, at the latest."""

    bytes_max: int
    batches_max: int  # keeps the commit of a segment of tiny batches far below the largest message
    interval_s: float  # since the first byte
    quiet_s: float  # since the latest byte or answer; infinity: quiet never closes
    quiet_under_way_max: int  # segments not yet answered, beside which quiet still closes


class TokenBucket:
    """`rate_per_second` tokens come in every second, and at most one second's worth is kept."""

    def __init__(self, rate_per_second: float) -> None:
        assert rate_per_second > 0, f"a bucket filled at {rate_per_second} per second never fills"
        self._period_s = 1 / rate_per_second
        self._kept_s = max(0.0, 1 - self._period_s)
        self._ready_s = -math.inf

    @property
    def ready_s(self) -> float:
        """From when on a token is there."""
        return self._ready_s

    def take(self, now_s: float) -> None:
        """Take the token that is there."""
        assert now_s >= self._ready_s, f"no token before {self._ready_s}, it is {now_s}"
        self._ready_s = max(self._ready_s, now_s - self._kept_s) + self._period_s


class ActiveBuffer(Generic[Fragment]):
    """Whole requests in the order in which they came.

    It is due at the first of: full; `interval_s` after its first byte; or *quiet*, when every producer waits for an
    answer and waiting longer gains nothing. The buffer is quiet when no byte came and no answer went out for `quiet_s`.
    It is quiet at once when as many requests are in as waited or were answered last time: all producers are back.

    Either way a token must be there to pay for the PUT, and no more than a few segments may be under way. Their answers
    will soon bring more bytes, and the bytes that wait meanwhile make a larger segment. Without that limit, a machine
    without CPU time to spare would pause for `quiet_s` again and again, and many small segments would cost it more.
    """

    def __init__(self, limits: BufferLimits, quiet_tokens: TokenBucket) -> None:
        self._limits = limits
        self._quiet_tokens = quiet_tokens
        self._answered_s = -math.inf
        self._empty()

    def _empty(self) -> None:
        self._fragments: list[Fragment] = []
        self._bytes = 0
        self._batches = 0
        self._first_s = math.inf
        self._latest_s = math.inf
        self._expected_requests: float = math.inf  # how many requests there will be when all producers are back

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in."""
        return not self._fragments

    @property
    def first_s(self) -> float:
        """When the first of what is in came; infinity while it is empty."""
        return self._first_s

    def add(self, fragments: Sequence[Fragment], now_s: float) -> None:
        """Take in all the fragments of one request; they will be in one segment."""
        if not self._fragments:
            self._first_s = now_s
        self._latest_s = now_s
        self._fragments += fragments
        self._bytes += sum(fragment.size_bytes for fragment in fragments)
        self._batches += sum(fragment.batch_count for fragment in fragments)

    def record_answered(self, requests: int, now_s: float) -> None:
        """So many requests were answered just now; their producers will soon send again, or never."""
        self._expected_requests = len(self._fragments) + requests
        self._answered_s = now_s

    def reason_to_close(self, now_s: float, under_way: int) -> Reason | None:
        """Why the buffer is due now, with so many segments under way, or None."""
        if self._bytes >= self._limits.bytes_max or self._batches >= self._limits.batches_max:
            return Reason.SIZE
        if now_s >= self._timer_s():
            return Reason.TIMER
        if now_s >= self._quiet_s(under_way):
            return Reason.QUIET
        return None

    def due_s(self, under_way: int) -> float:
        """When a buffer that is not full is due if nothing changes; infinity while it is empty."""
        return min(self._timer_s(), self._quiet_s(under_way))

    def close(self, reason: Reason, now_s: float) -> list[Fragment]:
        """Hand over all that is in, and begin anew."""
        if reason is Reason.QUIET:
            self._quiet_tokens.take(now_s)
        fragments = self._fragments
        self._empty()
        return fragments

    def _timer_s(self) -> float:
        return self._first_s + self._limits.interval_s

    def _quiet_s(self, under_way: int) -> float:
        limits = self._limits
        if not self._fragments or under_way > limits.quiet_under_way_max or limits.quiet_s == math.inf:
            return math.inf
        since_s = max(self._latest_s, self._answered_s)
        if len(self._fragments) < self._expected_requests:
            since_s += limits.quiet_s
        return max(since_s, self._quiet_tokens.ready_s)
