"""The active buffer: decides which requests become one segment, and when. It has no clock and does no I/O."""

import enum
import math
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec


class Weighed(Protocol):
    """The facts that the buffer needs of a fragment: its record bytes and its number of batches."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def batch_count(self) -> int: ...


Fragment = TypeVar("Fragment", bound=Weighed)


class Reason(enum.StrEnum):
    """The reason why a buffer closes."""

    SIZE = "size"
    TIMER = "timer"
    QUIET = "quiet"
    DRAIN = "drain"


class BufferLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions that close a buffer."""

    bytes_max: int
    batches_max: int  # keeps the commit of a segment of tiny batches far below the largest message
    interval_s: float  # since the first byte
    quiet_s: float  # since the latest byte or answer; infinity: no quiet flush
    quiet_under_way_max: int  # segments not yet answered; with more of them there is no quiet flush
    crowded_s: float = 10.0  # after an answer that asks for fewer segments: so long there is no quiet flush
    crowded_interval_s: float = 1.0  # the shortest interval in that time


class TokenBucket:
    """A bucket that gains `rate_per_second` tokens every second, and keeps at most those of one second."""

    def __init__(self, rate_per_second: float) -> None:
        assert rate_per_second > 0, f"a bucket that gains {rate_per_second} tokens per second stays empty"
        self._period_s = 1 / rate_per_second
        self._kept_s = max(0.0, 1 - self._period_s)
        self._ready_s = -math.inf

    @property
    def ready_s(self) -> float:
        """The time from which a token is available."""
        return self._ready_s

    def take(self, now_s: float) -> None:
        """Take an available token."""
        assert now_s >= self._ready_s, f"no token is available before {self._ready_s}, but it is {now_s}"
        self._ready_s = max(self._ready_s, now_s - self._kept_s) + self._period_s


class ActiveBuffer(Generic[Fragment]):
    """Complete requests in the order of their arrival.

    The buffer is due when it is full, or `interval_s` after its first byte, or when it is *quiet*. It is quiet when
    every producer waits for an answer, so that a longer wait gains nothing. That is the case when for `quiet_s` no byte
    came and no answer was sent. It is also the case as soon as all producers are back: the buffer has as many requests
    as it had at the last answer, plus those answered then.

    A quiet flush also needs a token, which limits the PUTs, and only a few segments may be unanswered. Their answers
    will soon bring more bytes, so the waiting bytes make a larger segment. Without that limit, a machine without free
    CPU time would wait for `quiet_s` again and again. Many small segments would then cost it more.
    """

    def __init__(self, limits: BufferLimits, quiet_tokens: TokenBucket) -> None:
        self._limits = limits
        self._quiet_tokens = quiet_tokens
        self._answered_s = -math.inf
        self._crowded_until_s = -math.inf
        self._empty()

    def _empty(self) -> None:
        self._fragments: list[Fragment] = []
        self._bytes = 0
        self._batches = 0
        self._first_s = math.inf
        self._latest_s = math.inf
        self._expected_requests: float = math.inf  # the number of requests when all producers are back

    @property
    def is_empty(self) -> bool:
        """Whether the buffer is empty."""
        return not self._fragments

    @property
    def first_s(self) -> float:
        """The arrival time of the first fragment; infinity if the buffer is empty."""
        return self._first_s

    def add(self, fragments: Sequence[Fragment], now_s: float) -> None:
        """Add all fragments of one request; they will be in one segment."""
        if not self._fragments:
            self._first_s = now_s
        self._latest_s = now_s
        self._fragments += fragments
        self._bytes += sum(fragment.size_bytes for fragment in fragments)
        self._batches += sum(fragment.batch_count for fragment in fragments)

    def record_answered(self, requests: int, now_s: float, *, is_crowded: bool = False) -> None:
        """Record that so many requests were answered now; their producers will soon send again, or never.

        With `is_crowded` the sequencers ask for fewer and larger segments.
        """
        self._expected_requests = len(self._fragments) + requests
        self._answered_s = now_s
        if is_crowded:
            self._crowded_until_s = now_s + self._limits.crowded_s

    def reason_to_close(self, now_s: float, under_way: int) -> Reason | None:
        """The reason why the buffer is due now, with so many segments unanswered, or None."""
        if self._bytes >= self._limits.bytes_max or self._batches >= self._limits.batches_max:
            return Reason.SIZE
        if now_s >= self._timer_s():
            return Reason.TIMER
        if now_s >= self._quiet_s(under_way):
            return Reason.QUIET
        return None

    def due_s(self, under_way: int) -> float:
        """The time when a buffer that is not full is due without further events; infinity if it is empty."""
        return min(self._timer_s(), self._quiet_s(under_way))

    def close(self, reason: Reason, now_s: float) -> list[Fragment]:
        """Return all fragments and empty the buffer."""
        if reason is Reason.QUIET:
            self._quiet_tokens.take(now_s)
        fragments = self._fragments
        self._empty()
        return fragments

    def _timer_s(self) -> float:
        interval_s = self._limits.interval_s
        if self._first_s < self._crowded_until_s:
            interval_s = max(interval_s, self._limits.crowded_interval_s)
        return self._first_s + interval_s

    def _quiet_s(self, under_way: int) -> float:
        limits = self._limits
        if not self._fragments or under_way > limits.quiet_under_way_max or limits.quiet_s == math.inf:
            return math.inf
        since_s = max(self._latest_s, self._answered_s)
        if len(self._fragments) < self._expected_requests:
            since_s += limits.quiet_s
        return max(since_s, self._quiet_tokens.ready_s, self._crowded_until_s)
