"""One connection's route to its flusher: in order, to one flusher at a time, with retries of attempts without effect.

A request of another lane (ADR 0045) waits for the answers to all requests before it: the lanes of a flusher do not
wait for each other.

A route ends with the first request that the journal did not decide: its outcome is unknown, or it was given up. No
later request may overtake it. Otherwise an idempotent producer would get its later batches rejected as out of order. It
would begin a new epoch, and send batches again, as new records, that are in the journal already. So nothing more is
sent, and the connection is closed. The client acts as after a broker's crash: it sends all unanswered requests again,
in order.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.contracts.batches import BatchResult
from penstock.contracts.codec import Buffer
from penstock.contracts.messages import FlushBatch, Presence
from penstock.contracts.rejections import Rejection
from penstock_gateway.produce.flush_packing import Produce

# The flusher for a route, of the candidates by instance.
Choice = Callable[[Mapping[str, Presence]], Presence]

# Results without a final decision of the state machine: later requests must not overtake these.
_UNDECIDED = frozenset((Rejection.OUTCOME_UNKNOWN, Rejection.OVERLOADED))


class Flushed(msgspec.Struct, frozen=True):
    """The outcome of a produce request: one result per batch."""

    results: list[BatchResult]
    throttle_ms: int


def is_undecided(results: Sequence[BatchResult]) -> bool:
    """Whether the connection must end, because a request on it was not decided."""
    return any(result.rejection in _UNDECIDED for result in results)


class QueuedProduce(Produce):
    """A produce with the route of its connection, and with the answer that the connection waits for."""

    __slots__ = ("__weakref__", "answer", "leased_until_s", "route", "throttle_ms")

    def __init__(
        self,
        number: int,
        batches: Sequence[FlushBatch],
        payload: Sequence[Buffer],
        deadline_s: float,
        route: "ProducerRoute",
    ) -> None:
        super().__init__(number, batches, payload, deadline_s)
        self.route = route
        self.throttle_ms = 0
        self.leased_until_s = 0.0  # monotonic: until then it may still be committed
        self.answer: asyncio.Future[Flushed] = asyncio.get_running_loop().create_future()

    def settle(self) -> None:
        if not self.answer.done():
            self.answer.set_result(Flushed(self.results, self.throttle_ms))

    def settle_unsent(self) -> None:
        self.results = [BatchResult(Rejection.OVERLOADED)] * len(self.batches)
        self.settle()


class Window(Protocol):
    """The part of a flusher's window that routes need."""

    instance: str
    is_full: bool
    routes: "dict[ProducerRoute, None]"

    def offer(self, produce: QueuedProduce) -> None: ...


class Router(Protocol):
    """The part of the flush router that routes need."""

    stalled: "dict[ProducerRoute, None]"

    def take(
        self,
        batches: Sequence[FlushBatch],
        payload: Sequence[Buffer],
        timeout_s: float,
        route: "ProducerRoute",
        *,
        needs_confirmation: bool,
    ) -> QueuedProduce: ...

    def candidates(self) -> dict[str, Presence]: ...

    def window_of(self, presence: Presence) -> Window: ...

    def want_sweep(self) -> None: ...


class ProducerRoute:
    """One connection's route to its flusher; `on_change` is called when `is_full` may have changed."""

    def __init__(self, router: Router, choose: Choice, on_change: Callable[[], None]) -> None:
        self._router = router
        self._choose = choose
        self.on_change = on_change
        self._window: Window | None = None
        self._unanswered = 0
        self._is_express = False  # the lane of the unanswered requests
        self._undelivered: list[QueuedProduce] = []  # to be sent again once all sent requests are answered
        self._latest_delivered = 0  # number of the latest request that reached a flusher
        self._waiting: deque[QueuedProduce] = deque()
        self.is_over = False  # closed, or ended by a request that was not decided

    @property
    def is_full(self) -> bool:
        """Whether to stop reading from the client."""
        return bool(self._waiting) or (self._window is not None and self._window.is_full)

    @property
    def in_flight(self) -> int:
        """How many requests of the connection have no answer yet."""
        return self._unanswered + len(self._waiting)

    def submit(
        self,
        batches: Sequence[FlushBatch],
        payload: Sequence[Buffer],
        timeout_s: float,
        *,
        needs_confirmation: bool = False,
        principal: str = "",
        is_express: bool = False,
        trace: str = "",
    ) -> "asyncio.Future[Flushed]":
        """Hand over the accepted batches of one request; requests reach the flusher in the order of these calls.

        With `needs_confirmation` the flusher asks right before the commit whether the request is still wanted. `trace`
        is the span of a sampled request.
        """
        produce = self._router.take(batches, payload, timeout_s, self, needs_confirmation=needs_confirmation)
        produce.principal = principal
        produce.is_express = is_express
        produce.trace = trace
        if self.is_over:
            produce.settle_unsent()
        else:
            self._waiting.append(produce)
            self.advance()
        return produce.answer

    def advance(self) -> None:
        """Pass on waiting requests to the flusher's window, if there is one."""
        while self._waiting:
            window = self._current_window()
            if window is None:
                self._stall()
                return
            self._unanswered += 1
            self._is_express = self._waiting[0].is_express
            window.offer(self._waiting.popleft())
        if self in self._router.stalled:
            del self._router.stalled[self]
            self.on_change()

    def finished(self, produce: QueuedProduce) -> None:
        """Answer a produce, or queue it again; nothing of it is in flight any more."""
        self._unanswered -= 1
        if produce.was_delivered or self.is_over:
            self._latest_delivered = max(self._latest_delivered, produce.number)
            produce.settle()
        else:
            produce.begin_attempt()
            self._undelivered.append(produce)
        if (produce.was_delivered and is_undecided(produce.results)) or self._was_overtaken:
            self.end()
        if not self._unanswered and self._undelivered:
            self._waiting.extendleft(sorted(self._undelivered, key=lambda again: -again.number))
            self._undelivered.clear()
        self.advance()

    @property
    def has_undelivered(self) -> bool:
        """Whether later requests must wait, because an earlier one is to be sent again."""
        return bool(self._undelivered)

    @property
    def _was_overtaken(self) -> bool:
        return any(produce.number < self._latest_delivered for produce in self._undelivered)

    def expire(self, now_s: float) -> None:
        """End the route if a request waited too long; it was never sent."""
        if any(waiting.deadline_s <= now_s for waiting in self._waiting):
            self.end()

    def close(self) -> None:
        """Drop all unsent requests: the connection is gone."""
        self._waiting.clear()
        self._undelivered.clear()
        self.end()
        self.on_change = _ignore

    def end(self) -> None:
        """Send nothing more: a request was not decided."""
        self.is_over = True
        for produce in (*self._undelivered, *self._waiting):
            produce.settle_unsent()
        self._undelivered.clear()
        self._waiting.clear()
        self._router.stalled.pop(self, None)
        self.leave()

    def _stall(self) -> None:
        if self not in self._router.stalled:
            self._router.stalled[self] = None
            self._router.want_sweep()
            self.on_change()

    def _current_window(self) -> Window | None:
        if self._undelivered or (self._unanswered and self._waiting[0].is_express != self._is_express):
            return None
        candidates = self._router.candidates()
        if self._window is not None and self._window.instance in candidates:
            return self._window
        if self._unanswered or not candidates:
            return None
        self.leave()
        self._window = self._router.window_of(self._choose(candidates))
        self._window.routes[self] = None
        return self._window

    def leave(self) -> None:
        """Leave the flusher's window; the next request chooses a flusher again."""
        if self._window is not None:
            self._window.routes.pop(self, None)
            self._window = None


def _ignore() -> None:
    """The reaction of a closed connection to changes."""
