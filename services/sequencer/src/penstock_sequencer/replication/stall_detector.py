"""Detects stalls of this process, and commands that may have waited in it during a stall.

A sender gives an attempt up after a second and sends its commands again through another replica. They are applied
there, and the cluster moves on: a group commits later offsets, is deleted, is joined again. A paused machine, a
debugger, or a lack of CPU may stall a replica in that time. It still has the attempt in its queues, or in the socket,
and must not journal it any more.

The time in a command (`now_ms`) does not show its age: senders repeat commands unchanged for many minutes. So the
process measures itself. Each caller reads the time; if the last reading is more than `stall_s` ago, that is a stall.
Commands that arrived before the stall are void. Commands that arrive after it are void until a message from the process
to itself has returned. The server sends to one connection in order. So that message comes after everything that
waited in the sockets and in the server's buffer. A void command is answered with a failure. Its sender, if it still
waits, asks again.
"""

import asyncio

import msgspec
import structlog

from penstock.contracts.errors import Unavailable
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.concurrency.beat import until_beat
from penstock_sequencer.metrics import SequencerMetrics

VOID = -1  # the ticket of a command that may have waited during a stall

log = structlog.get_logger()


class StallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a pause of the process counts as a stall."""

    look_interval_s: float = 0.1  # between two readings of the time while commands arrive
    idle_interval_s: float = 0.25  # between two readings without commands; the rest of `stall_s` is for late timers
    stall_s: float = 0.5  # half of a sender's attempt, so two shorter pauses in a row are no longer than one attempt
    flush_retry_s: float = 0.1


STALL_LIMITS = StallLimits()


class StallDetector:
    """Gives a ticket to each incoming command; the ticket is valid until the next stall."""

    def __init__(
        self, *, bus: Bus, clock: Clock, metrics: SequencerMetrics, limits: StallLimits = STALL_LIMITS
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._limits = limits
        self._looked_s: float | None = None
        self._count = 0
        self._is_idle = True  # whether no command has arrived since the last look
        self._settled = 0  # number of the last stall whose waiting commands have all arrived
        self._stalled = asyncio.Event()

    def ticket(self) -> int:
        """A ticket for work that this process creates now."""
        now_s = self._clock.monotonic_s()
        stalled_s = now_s - (now_s if self._looked_s is None else self._looked_s)
        self._looked_s = now_s
        if stalled_s > self._limits.stall_s:
            self._count += 1
            self._stalled.set()
            self._metrics.stalls.inc()
            log.warning("process_stalled", seconds=round(stalled_s, 3))
        return self._count

    def ticket_in(self) -> int:
        """A ticket for a command that arrives now from outside."""
        ticket, self._is_idle = self.ticket(), False
        return ticket if self._settled == ticket else VOID

    def is_good(self, ticket: int) -> bool:
        """Whether there was no stall since the ticket was given."""
        return self.ticket() == ticket

    async def run(self) -> None:
        """Read the time, and find out when all waiting messages have arrived, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_for_ever())
            group.create_task(self._settle_for_ever())

    async def _look_for_ever(self) -> None:
        while True:
            self.ticket()
            was_idle, self._is_idle = self._is_idle, True
            await until_beat(self._limits.idle_interval_s if was_idle else self._limits.look_interval_s)

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
            await asyncio.sleep(self._limits.flush_retry_s)
            return
        # Messages before this one may still be in the queue of a handler that has not run yet. All of them are handled
        # in one turn of the event loop, because the handler of commands never waits.
        await asyncio.sleep(self._limits.look_interval_s)
        if self.is_good(ticket):
            self._settled = ticket
