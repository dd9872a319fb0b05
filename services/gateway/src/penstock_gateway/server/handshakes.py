"""The TLS handshakes in progress of one gateway: how many there may be, how long each may take, and their turns.

A handshake takes a millisecond of the event loop, and a thousand clients may begin at the same time. So the handshakes
take turns: in one iteration of the event loop they get a few milliseconds together, and other clients are served after
that.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock_gateway.metrics import TlsMetrics
from penstock_gateway.server.limits import HandshakeLimits

COMPLETED, FAILED, TIMEOUT, CLOSED = "completed", "failed", "timeout", "closed"
REFUSED, CONNECTION_RATE, STOPPED, UNKNOWN_NAME = "refused", "connection_rate", "stopped", "unknown_name"
OUTCOMES = (COMPLETED, FAILED, TIMEOUT, CLOSED, REFUSED, CONNECTION_RATE, STOPPED, UNKNOWN_NAME)


class Handshake(Protocol):
    """A connection whose handshake is in progress."""

    def advance(self) -> None:
        """Handle the bytes that came; it is the connection's turn."""

    def give_up(self, outcome: str) -> None:
        """Close the connection without an answer."""


class Handshakes:
    """The handshakes of one gateway."""

    def __init__(self, metrics: TlsMetrics, monotonic_s: Callable[[], float], limits: HandshakeLimits) -> None:
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._limits = limits
        self._timers: dict[Handshake, asyncio.TimerHandle] = {}
        self._waiting: dict[Handshake, None] = {}  # for their turn, in order
        self._is_scheduled = False
        for outcome in OUTCOMES:
            metrics.tls_handshakes.labels(outcome)

    @property
    def open(self) -> int:
        """How many are in progress."""
        return len(self._timers)

    def begin(self, handshake: Handshake) -> bool:
        """Add a handshake; False if there are too many. At its time limit it is given up."""
        if len(self._timers) >= self._limits.handshakes_max:
            return False
        loop = asyncio.get_running_loop()
        self._timers[handshake] = loop.call_later(self._limits.handshake_s_max, handshake.give_up, TIMEOUT)
        self._metrics.tls_handshakes_open.set(len(self._timers))
        return True

    def end(self, handshake: Handshake, outcome: str) -> None:
        """Remove a handshake and count its outcome; also for one that could not begin."""
        timer = self._timers.pop(handshake, None)
        if timer is not None:
            timer.cancel()
        self._waiting.pop(handshake, None)
        self._metrics.tls_handshakes_open.set(len(self._timers))
        self._metrics.tls_handshakes.labels(outcome).inc()

    def ask_turn(self, handshake: Handshake) -> None:
        """Call `advance` when it is the handshake's turn, in this iteration of the event loop or a later one."""
        self._waiting[handshake] = None
        self._schedule()

    def give_up_all(self) -> None:
        """Close all connections whose handshake is in progress."""
        for handshake in list(self._timers):
            handshake.give_up(STOPPED)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_scheduled = False
        ends_s = self._monotonic_s() + self._limits.turn_s_max
        while self._waiting:
            handshake = next(iter(self._waiting))
            del self._waiting[handshake]
            handshake.advance()
            if self._monotonic_s() >= ends_s and self._waiting:
                self._schedule()
                return
