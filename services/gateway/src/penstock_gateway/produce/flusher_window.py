"""One flusher as this gateway uses it: requests that wait for its window, and requests that it has not answered."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Protocol

import structlog

from penstock.contracts import subjects
from penstock.contracts.batches import BatchResult
from penstock.contracts.errors import PenstockError, Undelivered
from penstock.contracts.messages import FlushReply, Presence
from penstock.contracts.rejections import Rejection
from penstock_gateway.produce.flush_packing import Message, pack, record_delivered, record_finished, record_reply
from penstock_gateway.produce.producer_route import ProducerRoute, QueuedProduce

log = structlog.get_logger()


def subject_of(cluster: str, presence: Presence) -> str:
    """The subject on which a flusher takes produced batches."""
    return subjects.flush(cluster, presence.zone, presence.instance)


class Sender(Protocol):
    """The part of the flush router that windows need."""

    cluster: str

    @property
    def is_connected(self) -> bool: ...

    @property
    def message_bytes_max(self) -> int: ...

    def window_bytes(self, instance: str) -> int: ...

    def start(self, sending: Coroutine[None, None, None]) -> "asyncio.Task[None]": ...

    async def request(self, subject: str, zone: str, message: Message) -> FlushReply: ...

    def record_unreachable(self, instance: str) -> None: ...

    def want_sweep(self) -> None: ...

    def monotonic_s(self) -> float: ...


class FlusherWindow:
    """The requests that wait for one flusher's window, and those sent to it and not answered."""

    def __init__(self, sender: Sender, presence: Presence) -> None:
        self._sender = sender
        self.instance = presence.instance
        self._zone = presence.zone
        self._subject = subject_of(sender.cluster, presence)
        self.routes: dict[ProducerRoute, None] = {}
        self.outbox: deque[QueuedProduce] = deque()
        self.unanswered_bytes = 0
        self.is_full = False
        self._pump_is_due = False
        self._messages: dict[int, tuple[asyncio.Task[None], Message]] = {}

    def offer(self, produce: QueuedProduce) -> None:
        """Take a produce; all produces of one iteration of the event loop are packed together."""
        self.outbox.append(produce)
        self._pump_soon()

    def lose(self) -> None:
        """Give up the flusher, which is gone: the outcome of sent requests is unknown, the rest was never sent."""
        for task, message in list(self._messages.values()):
            task.cancel()
            record_delivered(message)
            if self._lease_s(message) > 0:
                self._messages[id(message)] = (self._sender.start(self._give_up(message)), message)
            else:
                self._finish(message)
        while self.outbox:
            produce = self.outbox.popleft()
            produce.route.finished(produce)
        self.is_full = False
        for route in list(self.routes):
            route.leave()
            route.on_change()

    def expire(self, now_s: float) -> None:
        """Answer requests that waited for the window too long; they were never sent."""
        for produce in [waiting for waiting in self.outbox if waiting.deadline_s <= now_s]:
            self.outbox.remove(produce)
            produce.was_delivered = True
            produce.results = [BatchResult(Rejection.OVERLOADED)] * len(produce.batches)
            produce.route.finished(produce)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_is_due = False
        window = self._sender.window_bytes(self.instance)
        taken = []
        while self._may_send and (not self.unanswered_bytes or self._fits(self.outbox[0], window)):
            produce = self.outbox.popleft()
            if produce.route.is_over or produce.route.has_undelivered:
                produce.route.finished(produce)
                continue
            self.unanswered_bytes += produce.cost_bytes
            taken.append(produce)
        standard = [produce for produce in taken if not produce.is_express]
        express = [produce for produce in taken if produce.is_express]
        for of_lane in (express, standard):  # a message is answered when all its requests are
            for message in pack(of_lane, self._sender.message_bytes_max):
                task = self._sender.start(self._send(message))
                self._messages[id(message)] = (task, message)
        self._set_full(bool(self.outbox))
        if self.outbox:
            self._sender.want_sweep()

    @property
    def _may_send(self) -> bool:
        return bool(self.outbox) and self._sender.is_connected

    def _fits(self, produce: QueuedProduce, window_bytes: int) -> bool:
        return self.unanswered_bytes + produce.cost_bytes <= window_bytes

    async def _send(self, message: Message) -> None:
        try:
            reply = await self._sender.request(self._subject, self._zone, message)
            record_delivered(message)
            record_reply(reply, message)
            _record_throttle(reply, message)
        except Undelivered:
            self._sender.record_unreachable(self.instance)
        except PenstockError as error:
            record_delivered(message)
            log.warning("flush_outcome_unknown", flusher=self.instance, produces=len(message), reason=str(error))
            await self._give_up(message)
            return
        self._finish(message)

    async def _give_up(self, message: Message) -> None:
        """Answer when nothing of the message can be committed any more; usually that is so already."""
        lease_s = self._lease_s(message)
        if lease_s > 0:
            await asyncio.sleep(lease_s)
        self._finish(message)

    def _lease_s(self, message: Message) -> float:
        """How long something of the message may still be committed; no lease begins after `record_delivered`."""
        return max(_leased_until_s(message)) - self._sender.monotonic_s()

    def _finish(self, message: Message) -> None:
        if self._messages.pop(id(message), None) is None:
            return
        for produce in record_finished(message):
            assert isinstance(produce, QueuedProduce)
            self.unanswered_bytes -= produce.cost_bytes
            produce.route.finished(produce)
        if self.outbox:
            self._pump_soon()

    def _set_full(self, is_full: bool) -> None:
        if is_full != self.is_full:
            self.is_full = is_full
            for route in list(self.routes):
                route.on_change()


def _leased_until_s(message: Message) -> Iterator[float]:
    for part in message:
        assert isinstance(part.produce, QueuedProduce)
        yield part.produce.leased_until_s


def _record_throttle(reply: FlushReply, message: Message) -> None:
    if reply.throttle_ms:
        for part in message:
            assert isinstance(part.produce, QueuedProduce)
            part.produce.throttle_ms = max(part.produce.throttle_ms, reply.throttle_ms)
