"""`Bus` over one core NATS connection: requests, subscriptions, and the handling of a broken connection."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import nats.errors
import prometheus_client
import structlog
from nats.aio.msg import Msg

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.runtime.bus.bus import Handler, Payload, size_of
from penstock.runtime.nats.cancellation import finish_within, honest_cancellation
from penstock.runtime.nats.patched_client import PatchedClient
from penstock.runtime.nats.permissions import Rejection, RejectionLog, parse_rejection
from penstock.runtime.nats.subscription import NatsSubscription, SubscriptionLimits
from penstock.runtime.nats.tail import RawMessage

NO_RESPONDERS = "503"
REASONS_LOGGED_MAX = 10  # for each lost connection: some reasons contain numbers of ports that change

log = structlog.get_logger()


class BusLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long calls of the bus wait, and the smallest message limit that a server may have."""

    # A request waits so long for a lost connection to come back. So its caller does not retry in a hot loop.
    offline_wait_s: float = 1.0
    flush_timeout_s: float = 5.0
    # The time to send the buffered messages.
    close_timeout_s: float = 3.0
    # The smallest `max_payload` of a server: heads of answers take 16 KiB, and the data must fit too.
    message_bytes_min: int = 64 * 1024
    subscription: SubscriptionLimits = SubscriptionLimits()


DEFAULT_LIMITS = BusLimits()


class _Inbound:
    """A message as handlers see it."""

    __slots__ = ("_bus", "_message")

    def __init__(self, bus: "NatsBus", message: Msg) -> None:
        self._bus = bus
        self._message = message

    @property
    def subject(self) -> str:
        return self._message.subject

    @property
    def data(self) -> bytes:
        return self._message.data

    @property
    def buffers(self) -> Sequence[Buffer]:
        return (self._message.data,)

    async def respond(self, data: Payload) -> None:
        if self._message.reply:
            await self._bus.publish(self._message.reply, data)


class NatsBus:
    """`Bus` over one NATS connection that reconnects for ever."""

    def __init__(
        self,
        client: PatchedClient,
        inbox: str,
        registry: prometheus_client.CollectorRegistry | None,
        *,
        limits: BusLimits = DEFAULT_LIMITS,
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._limits = limits
        self._tokens = itertools.count()
        self._waiting: dict[str, asyncio.Future[Msg | None]] = {}  # None: the connection broke
        self._reconnected = asyncio.Event()
        # Requests pass one by one. So no request overtakes another one that waits for a connection.
        self._gate = asyncio.Lock()
        self._ended = asyncio.Event()
        self._closing = False
        self._failure: Exception | None = None
        self._is_lost = False  # since the connection broke, until it is back
        self._reasons: set[str] = set()  # why it did not come back; each is logged once
        self._rejections = RejectionLog()
        self._deniable: set[str] = set()  # subjects in lower case, as in rejections
        self._reconnect_listeners: list[Callable[[], None]] = []
        self._dropped = prometheus_client.Counter(
            "penstock_bus_dropped_messages",
            "Messages lost, by cause: `slow`, a subscription held too much; `offline`, there was no connection; "
            "`refused`, the server denied them.",
            ["cause"],
            registry=registry,
        )
        for cause in ("slow", "offline", "refused"):
            self._dropped.labels(cause)  # from zero on, so that an alert sees the first one
        self._disconnects = prometheus_client.Counter(
            "penstock_bus_disconnects", "Lost connections to NATS.", registry=registry
        )

    async def open(self) -> None:
        """Subscribe to the answers to requests; `Invalid` if the server's largest message is too small."""
        self._check_message_size()
        await self._subscribe(f"{self._inbox}.*", self._take_answer, "")

    @property
    def message_bytes_max(self) -> int:
        return self._client.max_payload

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def is_clustered(self) -> bool:
        """Whether the present or last server is one of a cluster."""
        return self._client.is_clustered

    @property
    def failure(self) -> Exception | None:
        """The fatal error, if there was one; `run_until_closed` raises it."""
        return self._failure

    async def publish(self, subject: str, data: Payload) -> None:
        try:
            await self._send(subject, data)
        except Unavailable:
            self._dropped.labels("offline").inc()

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        return (await self.exchange(subject, data, timeout_s)).data

    async def request_buffers(self, subject: str, data: Payload, timeout_s: float) -> Sequence[Buffer]:
        return (await self.request(subject, data, timeout_s),)

    def is_local(self, subject: str) -> bool:
        return False

    async def exchange(
        self, subject: str, data: Payload, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """`request` with headers and with the whole answer."""
        return await self._exchange(lambda reply: self._send(subject, data, reply, headers), subject, timeout_s)

    async def _exchange(self, send: Callable[[str], Awaitable[None]], subject: str, timeout_s: float) -> Msg:
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        await self._until_connected(min(timeout_s, self._limits.offline_wait_s))
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        try:
            async with asyncio.timeout_at(deadline_s):
                await send(f"{self._inbox}.{token}")
                message = await answer
        except TimeoutError as error:
            raise Unavailable(f"no answer on {subject} within {timeout_s:g} s") from error
        finally:
            del self._waiting[token]
        if message is None and self._failure is not None:
            raise Unavailable(f"no answer on {subject}: {self._failure}")
        if message is None:
            raise Unavailable(f"the connection broke while waiting for an answer on {subject}")
        if not message.data and message.headers and message.headers.get("Status") == NO_RESPONDERS:
            raise Undelivered(f"no subscriber on {subject}")
        return message

    async def subscribe(
        self, subject: str, handler: Handler, queue: str = "", *, may_be_denied: bool = False
    ) -> NatsSubscription:
        if may_be_denied:
            self._deniable.add(subject.lower())

        async def deliver(message: Msg) -> None:
            await handler(_Inbound(self, message))

        return await self._subscribe(subject, deliver, queue)

    async def listen(self, inbox: str, deliver: Callable[[RawMessage], None]) -> Callable[[], Awaitable[None]]:
        """Pass on the client's own messages, with headers and reply subject. The returned function ends that."""

        async def take(message: Msg) -> None:
            deliver(message)

        return (await self._subscribe(inbox, take, "")).drop

    async def _subscribe(self, subject: str, deliver: Callable[[Msg], Awaitable[None]], queue: str) -> NatsSubscription:
        if self._client.is_closed:
            raise Unavailable(f"cannot subscribe to {subject}: the bus is closed")
        subscription = NatsSubscription(self, self._client, deliver, limits=self._limits.subscription)
        await subscription.open(subject, queue)
        return subscription

    async def flush(self) -> None:
        # A message to this process comes back after the server has handled all messages before it. The client's own
        # flush breaks its read loop when the answer comes after the timeout.
        await self._exchange(lambda inbox: self._send(inbox, b""), "our own inbox", self._limits.flush_timeout_s)

    async def try_flush(self) -> None:
        """`flush`, but only a log line if the servers do not answer."""
        try:
            await self.flush()
        except Unavailable as error:
            log.warning("bus_not_flushed", error=str(error))

    async def run_until_closed(self) -> None:
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self._closing = True
        if not self._client.is_connected:
            self._client.drop_unsent()  # kept for a new connection, and there will be none; sending it would raise
        try:
            await finish_within(self._client.close(), self._limits.close_timeout_s)
        except (OSError, TimeoutError) as error:
            log.warning("nats_connection_aborted", error=str(error) or "the server accepts no more bytes")
            self._client.abort()
        except asyncio.CancelledError:
            self._client.abort()
            raise
        finally:
            self._break_off_requests()
            self._reconnected.set()
            self._ended.set()

    def fail(self, error: Exception) -> None:
        """Make `run_until_closed` raise `error`; only the first error counts."""
        if self._failure is None and not self._closing:
            self._failure = error
            self._ended.set()

    def new_inbox(self) -> str:
        """A new subject for this process that no answer to a request uses."""
        return f"{self._inbox}-{next(self._tokens)}"

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the connection broke or is back. The returned function ends that."""
        self._reconnect_listeners.append(listener)
        return lambda: self._reconnect_listeners.remove(listener)

    async def _send(self, subject: str, data: Payload, reply: str = "", headers: dict[str, str] | None = None) -> None:
        if (size_bytes := size_of(data)) > self._client.max_payload:
            raise Invalid(f"message of {size_bytes} bytes on {subject} is over the limit of {self._client.max_payload}")
        try:
            with honest_cancellation():
                await self._client.send(subject, data, reply, headers)
        except nats.errors.MaxPayloadError as error:
            raise Invalid(f"message of {size_bytes} bytes on {subject} is over the limit") from error
        except nats.errors.Error as error:
            raise Unavailable(f"cannot send on {subject}: {error}") from error

    async def _until_connected(self, wait_s: float) -> None:
        if self._client.is_connected and not self._gate.locked():
            async with self._gate:  # taken at once, or after the requests that waited
                return
        try:
            async with asyncio.timeout(wait_s), self._gate:
                while not self._client.is_connected and not self._closing:
                    self._reconnected.clear()
                    await self._reconnected.wait()
        except TimeoutError as error:
            raise Undelivered("not connected to a nats server") from error
        if self._closing:
            await asyncio.sleep(0)
            raise Unavailable("the bus is closed")

    async def _take_answer(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():  # else the request has ended already
            answer.set_result(message)

    def _break_off_requests(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(None)

    def _check_message_size(self) -> None:
        needed_bytes = self._limits.message_bytes_min
        if self.message_bytes_max < needed_bytes:
            raise Invalid(
                f"the nats server allows messages of {self.message_bytes_max} bytes, but {needed_bytes} are "
                f"needed: set its max_payload (8 MiB is best)"
            )

    async def on_disconnected(self) -> None:
        """The client's callback when the connection broke."""
        self._break_off_requests()
        if not self._closing:
            self._is_lost, self._reasons = True, set()
            self._disconnects.inc()
            log.warning("nats_disconnected")
        self._call_listeners()

    async def on_reconnected(self) -> None:
        """The client's callback when it is connected again."""
        self._is_lost = False
        log.info("nats_reconnected")
        try:
            self._check_message_size()
        except Invalid as error:
            self.fail(error)
        self._reconnected.set()
        self._call_listeners()

    async def on_closed(self) -> None:
        """The client's callback when it will never reconnect: after `close`, or at the server's request."""
        self.fail(Unavailable(f"the nats server closed the connection for good: {self._client.last_error}"))

    async def on_error(self, error: Exception) -> None:
        """The client's callback for errors in the background."""
        if isinstance(error, nats.errors.SlowConsumerError):
            self._dropped.labels("slow").inc()
            log.error(
                "bus_message_dropped",
                subject=error.subject,
                pending_bytes_max=self._limits.subscription.pending_bytes_max,
            )
        elif rejection := parse_rejection(str(error)):
            self._take_rejection(rejection)
        else:
            self._log_error(str(error) or type(error).__name__)

    def _log_error(self, reason: str) -> None:
        """Log an error: as a warning if it is a new reason why a lost connection does not come back."""
        if not self._is_lost or reason in self._reasons or len(self._reasons) >= REASONS_LOGGED_MAX:
            log.debug("nats_error", error=reason)
            return
        self._reasons.add(reason)
        log.warning("nats_not_reconnected", error=reason)

    def _take_rejection(self, rejection: Rejection) -> None:
        self._rejections.record(rejection)
        if not rejection.is_subscription:
            self._dropped.labels("refused").inc()
            return
        if rejection.subject in self._deniable:
            return
        # Without this the process would look healthy, and wait for ever for messages that never come.
        self.fail(Invalid(f"the nats server does not let its user subscribe to {rejection.subject}"))
        self._break_off_requests()

    def _call_listeners(self) -> None:
        for listener in list(self._reconnect_listeners):
            listener()
