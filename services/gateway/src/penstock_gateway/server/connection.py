"""The socket side of one Kafka connection: moves bytes between transport and pipeline, and runs the requests.

Reading stops, and received requests wait, in each of these cases:

- Too many requests are in flight.
- The client does not take its answers, or has used up a quota.
- Its flusher's window is full.
- All connections together hold too many bytes, or too many of incomplete frames.
- A large request has to wait for its turn: it is received when the requests before it are answered.

Each case calls back when it is over, and `_advance` decides again. Requests that began before the client stopped taking
answers wait for it, too.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from penstock.contracts.configs.quotas import ANONYMOUS
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer
from penstock_gateway.kafka.client import Arrival, Client
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.server.dispatch import API_KEY_BYTES, is_serial
from penstock_gateway.server.limits import ConnectionLimits
from penstock_gateway.server.pipeline import Pipeline, Slot
from penstock_gateway.server.progress import Progress
from penstock_gateway.server.receive_budget import SMALL_FRAME_BYTES, ReceiveBudget

LAST_ANSWER_S = 0.2  # from the answer to a failed login to the end of its connection


class Owner(Protocol):
    """The part of the connection manager that a connection needs."""

    budget: ReceiveBudget
    response_memory: ResponseMemory
    limits: ConnectionLimits

    def new_pipeline(self) -> Pipeline: ...

    def limit(self, pipeline: Pipeline, client: Client) -> None: ...

    def new_client(self, host: str, listener: str) -> Client: ...

    def start(self, connection: "Connection", slot: Slot, frame: memoryview) -> "asyncio.Task[None]": ...

    async def answer(self, client: Client, frame: memoryview, arrival: Arrival) -> list[Buffer]: ...

    def seen_sequence(self) -> int: ...

    def owner_after_login(self, client: Client) -> "Owner":
        """The owner from the login of a client on; where it chooses the cluster, the gateway of this one."""

    def wake(self) -> bool: ...

    def opened(self, connection: "Connection") -> bool: ...

    def delay_s(self, host: str) -> float: ...

    def closed(self, connection: "Connection", cause: str) -> None: ...

    def log_rejection(self, client: Client, reason: str) -> None: ...

    def monotonic_s(self) -> float: ...


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket."""

    def __init__(self, owner: Owner, listener: str, *, user: str = ANONYMOUS, is_admitted: bool = False) -> None:
        """`user` is the one of a client certificate. An admitted client has passed the quota of new connections."""
        self._owner = owner
        self._listener = listener  # the name of the listener that accepted it
        self._user = user
        self._is_admitted = is_admitted
        self._pipeline = owner.new_pipeline()
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrival = Arrival(0.0, 0)  # of the last bytes
        self._is_reading = True
        self._is_writing_paused = False
        self._unsent_bytes = 0  # as reported to the owner
        self.stuck_since_s: float | None = None  # since when the client takes no answers
        self._is_draining = False
        self._is_at_eof = False
        self._alarm: asyncio.TimerHandle | None = None  # when the client is read again
        self._cause = ""
        self.active_s = owner.monotonic_s()  # when bytes last came
        self._progress = Progress()
        self._needs_login = False
        self._transport: asyncio.Transport
        self._client: Client
        self.get_buffer: Callable[[int], memoryview] = self._pipeline.get_buffer  # type: ignore[assignment]  # bound once

    @property
    def client(self) -> Client:
        """The client at the other end."""
        return self._client

    @property
    def is_ending(self) -> bool:
        """Whether it closes, when its client has taken the answers at hand."""
        return self._transport.is_closing()

    @property
    def unanswered(self) -> int:
        """How many requests have not been answered."""
        return self._pipeline.unanswered

    @property
    def partial_bytes(self) -> int:
        """How many bytes of an incomplete frame were received."""
        return self._pipeline.partial_bytes

    @property
    def partial_frame(self) -> tuple[int, int]:
        """The number and the announced size of the incomplete frame."""
        return self._pipeline.partial_frame

    def is_too_slow(self, now_s: float) -> bool:
        """Whether the client makes too little progress with its frame, although it could. Asked regularly.

        A client that takes no answers is not read. It could take them, and its frame may keep other clients waiting.
        """
        is_contended = self._owner.budget.is_contended
        number, received = self._pipeline.partial_frame[0], self._pipeline.partial_bytes
        could_send = self._is_reading or (is_contended and (self._is_writing_paused or self.is_ending))
        if not could_send or not received:
            self._progress.begin(now_s, number, received)
            return False
        return self._progress.is_too_slow(now_s, number, received, self._owner.limits, is_contended=is_contended)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._owner.limits.write_buffer_bytes_max)
        peer = transport.get_extra_info("peername")
        self._client = self._owner.new_client(peer[0] if peer else "", self._listener)
        self._client.user = self._user
        self._client.port = peer[1] if peer else 0
        self._client.on_flusher_change = self._advance
        self._needs_login = self._client.needs_login
        self._owner.limit(self._pipeline, self._client)
        if not self._owner.opened(self):
            self.end("too_many_connections")
            return
        if self._owner.wake():
            self.give_up()
            return
        delay_s = 0.0 if self._is_admitted else self._owner.delay_s(self._client.host)
        if delay_s:
            self._reject_late(delay_s)

    def buffer_updated(self, nbytes: int) -> None:
        self.active_s = self._owner.monotonic_s()
        self._arrival = Arrival(self.active_s, self._owner.seen_sequence())
        if not self._pipeline.partial_bytes:
            self._progress.begin(self.active_s, self._pipeline.partial_frame[0], 0)
        self._pipeline.received(nbytes)
        self._advance()

    def eof_received(self) -> bool:
        """The client has closed, perhaps right after produce requests with acks=0: these are still served."""
        self._is_at_eof = True
        self._end_behind_eof_soon()
        return True

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self.stuck_since_s = self._owner.monotonic_s()
        self._record_answers()
        self._advance()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self.stuck_since_s = None
        self._record_answers()
        self._advance()

    def on_room(self) -> None:
        """Check the budget in the next iteration of the event loop: another connection is still in its own step."""
        asyncio.get_running_loop().call_soon(self._advance)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_requests()
        self._pipeline.close()
        self._owner.budget.remove(self)
        self._count_unsent(0)
        self._client.close()
        if self._alarm is not None:
            self._alarm.cancel()
        self._owner.closed(self, self._cause)

    def drain(self) -> None:
        """Read nothing more; end when all requests in flight are answered."""
        self._is_draining = self._client.is_leaving = True
        self._advance()
        self._send()

    def end(self, cause: str) -> None:
        """Close for a reason of the gateway, after the answers at hand were sent."""
        if not self._transport.is_closing():
            self._cause = cause
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def give_up(self) -> None:
        """Close at once after a stall, and do nothing more for its requests."""
        self._cause = "stalled"
        self._cancel_requests()
        self._client.close()
        self._transport.abort()

    def _cancel_requests(self) -> None:
        """Cancel each request once: its first cleanup takes some time, and a second cancellation would end that."""
        while self._tasks:
            self._tasks.pop().cancel()

    async def serve(self, slot: Slot, frame: memoryview) -> None:
        """Answer one request."""
        try:
            answer = await self._owner.answer(self._client, frame, slot.arrival)
            if self._client.closing_cause and slot.is_serial:
                self._pipeline.answer_last(slot, answer)
            else:
                self._pipeline.answer(slot, answer)
        except CloseConnection as cause:
            self._log_rejection(str(cause))
            self._pipeline.reject(slot)
        if self._needs_login and not self._client.needs_login:
            self._needs_login = False
            self._move(self._owner.owner_after_login(self._client))
            self._owner.limit(self._pipeline, self._client)
        self._send()
        self._advance()
        if self._is_at_eof:
            self._end_behind_eof_soon()

    def _move(self, owner: Owner) -> None:
        """Go on with another owner. There is no other request in work: before the login they run one at a time."""
        if owner is self._owner:
            return
        self._count_unsent(0)
        self._owner.budget.remove(self)
        self._owner.closed(self, "")
        self._owner = owner
        self._pipeline.move(owner.budget)
        self._arrival = Arrival(self.active_s, owner.seen_sequence())  # of requests that came behind the login
        if not owner.opened(self):
            self.end("too_many_connections")
        elif delay_s := owner.delay_s(self._client.host):
            self._reject_late(delay_s)

    def _end_behind_eof_soon(self) -> None:
        """Close in the next iteration of the event loop, unless a request with acks=0 is then in progress."""
        asyncio.get_running_loop().call_soon(self._end_behind_eof)

    def _end_behind_eof(self) -> None:
        if not self._client.unanswered_produces:
            self._transport.close()

    def _advance(self) -> None:
        """Begin the requests that may begin, and read on if more of them may begin."""
        if self._transport.is_closing() or self._owner.wake():
            return
        try:
            self._begin_requests()
        except DecodeError as error:
            self._log_rejection(str(error))
            self._pipeline.reject_rest()
            self._send()
        if self._is_at_eof:
            return
        if self._may_begin() and not self._has_early_request():
            may_read = self._owner.budget.may_read(self)
        else:
            self._owner.budget.pause(self)
            may_read = False
        if may_read != self._is_reading and not self._transport.is_closing():
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _begin_requests(self) -> None:
        while self._may_begin():
            begun = self._pipeline.next_frame()
            if begun is None:
                return
            slot, frame = begun
            slot.is_serial = is_serial(frame)
            slot.arrival = self._arrival
            task = self._owner.start(self, slot, frame)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _may_begin(self) -> bool:
        if self._is_writing_paused or self._is_draining or not self._pipeline.has_room or self._is_muted():
            return False
        return not self._client.is_flusher_full()

    def _has_early_request(self) -> bool:
        """Whether the next request is large, and would only wait for its turn in memory."""
        if self._pipeline.partial_frame[1] <= SMALL_FRAME_BYTES or not self._pipeline.unanswered:
            return False
        return is_serial(self._pipeline.partial_head(API_KEY_BYTES))

    def _is_muted(self) -> bool:
        """Whether the client must wait; if so, `_advance` is called when the wait is over."""
        if not self._client.muted_until_s:
            return False
        left_s = self._client.muted_until_s - self._owner.monotonic_s()
        if left_s > 0 and self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(left_s, self._wake)
        return left_s > 0

    def _wake(self) -> None:
        self._alarm = None
        self._advance()

    def _reject_late(self, delay_s: float) -> None:
        """Close after a delay, as Kafka does: a client that is closed at once would connect again at once."""
        self._owner.log_rejection(self._client, "a quota of new connections is used up")
        self._client.muted_until_s = self._owner.monotonic_s() + delay_s
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self.end, "connection_rate")
        self._advance()

    def _send(self) -> None:
        output = self._pipeline.take_output()
        if output and not self._transport.is_closing():
            self._transport.writelines(output)
        self._record_answers()
        if self._pipeline.is_finished:
            self._end_behind_last_answer()
        elif self._is_draining and not self._pipeline.unanswered:
            self.end("draining")

    def _end_behind_last_answer(self) -> None:
        """Close. Behind an answer to the last request wait for a moment: some clients read no bytes before an end."""
        cause = self._client.closing_cause
        if not cause:
            self.end("refused")
        elif self._cause != cause:
            self._cause = cause
            asyncio.get_running_loop().call_later(LAST_ANSWER_S, self.end, cause)

    def _record_answers(self) -> None:
        buffered = self._transport.get_write_buffer_size() if self._is_writing_paused else 0
        self._count_unsent(buffered + self._pipeline.unsent_bytes)
        if self._is_writing_paused or self._pipeline.unsent_bytes > self._owner.limits.unsent_bytes_max:
            self._client.takes_answers.clear()
        else:
            self._client.takes_answers.set()

    def _count_unsent(self, size_bytes: int) -> None:
        if size_bytes != self._unsent_bytes:
            self._owner.response_memory.change(size_bytes - self._unsent_bytes)
            self._unsent_bytes = size_bytes

    def _log_rejection(self, reason: str) -> None:
        if self._pipeline.is_rejected:  # by another request in flight, which has logged the reason
            return
        self._owner.log_rejection(self._client, reason)
