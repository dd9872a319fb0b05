"""Finds out when this process stood still, and until when what comes in may have waited for it.

A sender gives an attempt up after a second and sends its commands again through another replica. They are done there,
and the world goes on: a group commits later offsets, is deleted, joined again. A replica that was stopped all the while
(a paused machine, a debugger, a process starved of CPU) still has the attempt in its queues, or in the socket. It must
not journal it when it wakes.

How old a command is, its `now_ms` does not tell: senders repeat commands unchanged for many minutes, and rightly so. So
we look at ourselves instead. Whoever looks at the time and finds that nobody did for `STALL_S` has found a stall. What
was taken in before it is void, and so is what comes after it until a message to ourselves has come back: the server
sends to one connection in order, so that message comes behind everything that was in the sockets and in the server's
buffer for us when we woke. A void command is answered with a failure, and its sender, if it still waits, asks again.
"""

import asyncio

import structlog

from penstock.contracts.errors import Unavailable
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock_sequencer.metrics import SequencerMetrics

LOOK_INTERVAL_S = 0.1
STALL_S = 0.5  # half of a sender's attempt, so that two shorter ones in a row are no longer than it either
FLUSH_RETRY_S = 0.1
VOID = -1  # the ticket of what may have waited while we stood still

log = structlog.get_logger()


class Stalls:
    """Gives a ticket to whatever comes in; it is good until the next stall."""

    def __init__(self, bus: Bus, clock: Clock, metrics: SequencerMetrics) -> None:
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._looked_s: float | None = None
        self._count = 0
        self._settled = 0  # the stalls before which nothing comes in any more
        self._stalled = asyncio.Event()

    def ticket(self) -> int:
        """For what was made in this moment."""
        now_s = self._clock.monotonic_s()
        stood_still_s = now_s - (now_s if self._looked_s is None else self._looked_s)
        self._looked_s = now_s
        if stood_still_s > STALL_S:
            self._count += 1
            self._stalled.set()
            self._metrics.stalls.inc()
            log.warning("stood_still", seconds=round(stood_still_s, 3))
        return self._count

    def ticket_in(self) -> int:
        """For what came in from outside in this moment."""
        ticket = self.ticket()
        return ticket if self._settled == ticket else VOID

    def is_good(self, ticket: int) -> bool:
        """Whether we went on without a stall since the ticket was given."""
        return self.ticket() == ticket

    async def run(self) -> None:
        """Look, and find out when what waited has come in, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_for_ever())
            group.create_task(self._settle_for_ever())

    async def _look_for_ever(self) -> None:
        while True:
            self.ticket()
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _settle_for_ever(self) -> None:
        while True:
            await self._stalled.wait()
            self._stalled.clear()
            while self._settled != self.ticket():
                await self._settle()

    async def _settle(self) -> None:
        ticket = self.ticket()
        try:
            await self._bus.flush()
        except Unavailable as error:
            log.warning("bus_not_flushed", error=str(error))
            await asyncio.sleep(FLUSH_RETRY_S)
            return
        # What came before the echo is in the queue of a handler that has yet to have its turn.
        await asyncio.sleep(LOOK_INTERVAL_S)
        if self.is_good(ticket):
            self._settled = ticket
