"""The intake of flush messages: checks, weighs and reassembles them, and fills the buffers in arrival order."""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from penstock.contracts.codec import unpack
from penstock.contracts.errors import Corrupt
from penstock.contracts.messages import FlushRequest
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.clock import Clock
from penstock_flusher.budget import Budget
from penstock_flusher.buffer import ActiveBuffer, Reason
from penstock_flusher.flush import FlushQueue
from penstock_flusher.fragments import (
    Fragment,
    Message,
    check_request,
    compact,
    fragments_of,
    new_message,
    rejected,
    weight_bytes,
)
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.reassembly import Reassembly

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """The way of requests into the store: a buffer, and the queue of its closed buffers."""

    buffer: ActiveBuffer[Fragment]
    flushes: FlushQueue

    @property
    def due_s(self) -> float:
        """The time when the buffer is due, as `ActiveBuffer.due_s`."""
        return self.buffer.due_s(self.flushes.under_way)


class Intake:
    """Moves messages from the bus into the buffers of their lanes, and closes each buffer when it is due."""

    def __init__(
        self,
        *,
        standard: Lane,
        express: Lane | None,
        reassembly: Reassembly[Fragment],
        budget: Budget,
        clock: Clock,
        metrics: FlusherMetrics,
    ) -> None:
        """Without an `express` lane, all requests take the standard one."""
        self._lanes = (standard,) if express is None else (standard, express)
        self._reassembly = reassembly
        self._budget = budget
        self._clock = clock
        self._metrics = metrics
        metrics.held_bytes_max.set(budget.bytes_max)
        metrics.held_bytes.set_function(lambda: budget.held_bytes)
        self._sleeps_until_s = math.inf
        self._wake = asyncio.Event()
        for lane in self._lanes:
            lane.flushes.on_answered(partial(self._record_answered, lane))

    async def handle(self, inbound: Inbound) -> None:
        """Handle one flush message; the reply follows when all its fragments are committed or rejected."""
        try:
            request, payload = unpack(inbound.buffers, FlushRequest)
            batches = check_request(request, payload)
        except Corrupt as error:
            self._metrics.rejected_messages.labels("malformed").inc()
            log.warning("flush_message_malformed", size_bytes=len(inbound.data), error=str(error))
            return
        weight = weight_bytes(batches)
        if self._budget.take(weight):
            message = new_message(inbound, request, self._budget, weight)
            await self._accept(fragments_of(message, request, compact(batches)))
        else:
            await self._reject_overload(new_message(inbound, request, self._budget, 0), request)

    async def run(self) -> None:
        """Close the buffer when it is due and reject overdue incomplete requests, until cancelled."""
        while True:
            now_s = self._clock.monotonic_s()
            for lane in self._lanes:
                self._close_if_due(lane, now_s)
            await self._reject(self._reassembly.give_up_late(now_s), Rejection.OVERLOADED)
            self._sleeps_until_s = self._due_s()
            await self._sleep(self._sleeps_until_s - now_s)

    async def drain(self) -> None:
        """Close the buffers now; call this when no more messages can come."""
        await self._reject(self._reassembly.give_up_all(), Rejection.OVERLOADED)
        now_s = self._clock.monotonic_s()
        for lane in self._lanes:
            if not lane.buffer.is_empty:
                self._close(lane, Reason.DRAIN, now_s)

    async def _accept(self, fragments: list[Fragment]) -> None:
        now_s = self._clock.monotonic_s()
        for fragment in fragments:
            complete, broken = self._reassembly.add(fragment, now_s)
            if complete:
                lane = self._lanes[-1 if fragment.is_express else 0]
                lane.buffer.add(complete, now_s)
                self._close_if_due(lane, now_s)
            await self._reject(broken, Rejection.OVERLOADED)
        if self._due_s() < self._sleeps_until_s:
            self._wake.set()

    async def _reject_overload(self, message: Message, request: FlushRequest) -> None:
        """Reject the whole message; nothing of it is stored, nor of a request that it would have continued."""
        self._metrics.rejected_messages.labels("overload").inc()
        for index, produce in enumerate(request.produces):
            await self._reject(self._reassembly.give_up(request.gateway, produce.request), Rejection.OVERLOADED)
            await message.settle(index, rejected(produce.batches, Rejection.OVERLOADED), 0)

    async def _reject(self, fragments: Sequence[Fragment], rejection: Rejection) -> None:
        for fragment in fragments:
            await fragment.message.settle(fragment.index, rejected(fragment.batches, rejection), 0)

    def _record_answered(self, lane: Lane, requests: int, is_crowded: bool) -> None:
        lane.buffer.record_answered(requests, self._clock.monotonic_s(), is_crowded=is_crowded)
        self._wake.set()

    def _due_s(self) -> float:
        return min(self._reassembly.due_s(), *[lane.due_s for lane in self._lanes])

    def _close_if_due(self, lane: Lane, now_s: float) -> None:
        reason = lane.buffer.reason_to_close(now_s, lane.flushes.under_way)
        if reason is not None:
            self._close(lane, reason, now_s)

    def _close(self, lane: Lane, reason: Reason, now_s: float) -> None:
        first_s = lane.buffer.first_s
        self._metrics.waits.labels("flush").observe(now_s - first_s)
        lane.flushes.submit(lane.buffer.close(reason, now_s), reason, first_s)

    async def _sleep(self, seconds: float) -> None:
        """Sleep for so long, or until an earlier due time is set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await self._wake.wait()
        self._wake.clear()
