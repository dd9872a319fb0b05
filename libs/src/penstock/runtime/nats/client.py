"""The bus over core NATS, and the one place that imports the nats library."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import nats
import nats.errors
import prometheus_client
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.contracts.ids import check_token
from penstock.runtime.bus.bounded import finish_within, honest_cancellation
from penstock.runtime.bus.bus import Bus, Handler, Payload
from penstock.runtime.clock import Entropy, SystemEntropy
from penstock.runtime.journal import Journal
from penstock.runtime.nats.address import checked_server, without_password
from penstock.runtime.nats.dead_server import ImpatientClient, abort
from penstock.runtime.nats.journal import open_journal
from penstock.runtime.nats.permissions import Rejection, RejectionLog, parse_rejection
from penstock.runtime.nats.subscription import PENDING_BYTES_MAX, NatsSubscription
from penstock.runtime.nats.tail import RawMessage

CONNECT_DEADLINE_S = 5.0  # a server that was started together with us is there by then
CONNECT_ATTEMPT_S = 2.0
RECONNECT_WAIT_MS_MIN = 50  # between two attempts; jittered per connection, so that not all come at once
RECONNECT_WAIT_MS_SPREAD = 50
OFFLINE_WAIT_S = 1.0  # a request waits this long for the connection to come back, so that nobody retries in a hot loop
PING_INTERVAL_S = 2  # a server that hangs without closing is found out after three of these
PINGS_UNANSWERED_MAX = 2
FLUSH_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 3.0  # to send what is buffered
# Bytes that wait in this process for the socket: beyond them a sender waits, and offline nothing more is kept.
SEND_BUFFER_BYTES_MAX = 4 * 1024 * 1024
# The least that a server has to let pass (`max_payload`): heads of answers take 16 KiB, and bytes have to go with them.
MESSAGE_BYTES_MIN = 64 * 1024
NO_RESPONDERS = "503"

log = structlog.get_logger()


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

    async def respond(self, data: Payload) -> None:
        if self._message.reply:
            await self._bus.publish(self._message.reply, data)


class NatsBus:
    """`Bus` over one NATS connection that reconnects for ever."""

    def __init__(self, client: Client, inbox: str, registry: prometheus_client.CollectorRegistry | None) -> None:
        self._client = client
        self._inbox = inbox
        self._tokens = itertools.count()
        self._waiting: dict[str, asyncio.Future[Msg | None]] = {}  # None: the connection broke
        self._reconnected = asyncio.Event()
        self._gate = asyncio.Lock()  # requests pass one by one, so that none overtakes one that waits for a connection
        self._ended = asyncio.Event()
        self._closing = False
        self._failure: Exception | None = None
        self._rejections = RejectionLog()
        self._reconnect_listeners: list[Callable[[], None]] = []
        self._dropped = prometheus_client.Counter(
            "penstock_bus_dropped_messages",
            "Messages lost, by cause: `slow`, a subscription held too much; `offline`, there was no connection; "
            "`refused`, the server rejected them.",
            ["cause"],
            registry=registry,
        )
        self._disconnects = prometheus_client.Counter(
            "penstock_bus_disconnects", "Breaks of the connection to NATS.", registry=registry
        )

    async def open(self) -> None:
        """Listen for the answers to our requests; `Invalid` if the server lets no messages of a useful size pass."""
        self._check_message_size()
        await NatsSubscription(self, self._client, self._take_answer).open(f"{self._inbox}.*", "")

    @property
    def message_bytes_max(self) -> int:
        return self._client.max_payload

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def is_clustered(self) -> bool:
        """Whether the server that we are or were connected to is one of several that act as one."""
        return bool(self._client._server_info.get("cluster"))

    @property
    def failure(self) -> Exception | None:
        """What fatal happened, if anything did; `run_until_closed` raises it."""
        return self._failure

    async def publish(self, subject: str, data: Payload) -> None:
        try:
            await self._send(subject, data)
        except Unavailable:
            self._dropped.labels("offline").inc()

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        return (await self.exchange(subject, data, timeout_s)).data

    async def exchange(
        self, subject: str, data: Payload, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """`request` with headers and with the whole answer."""
        return await self._exchange(lambda reply: self._send(subject, data, reply, headers), subject, timeout_s)

    async def _exchange(self, send: Callable[[str], Awaitable[None]], subject: str, timeout_s: float) -> Msg:
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        await self._until_connected(min(timeout_s, OFFLINE_WAIT_S))
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
            raise Undelivered(f"nobody listens on {subject}")
        return message

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> NatsSubscription:
        async def deliver(message: Msg) -> None:
            await handler(_Inbound(self, message))

        return await self._subscribe(subject, deliver, queue)

    async def listen(self, inbox: str, deliver: Callable[[RawMessage], None]) -> Callable[[], Awaitable[None]]:
        """Hand over the client's own messages, headers and reply subject included; returns what ends that."""

        async def take(message: Msg) -> None:
            deliver(message)

        return (await self._subscribe(inbox, take, "")).drop

    async def _subscribe(self, subject: str, deliver: Callable[[Msg], Awaitable[None]], queue: str) -> NatsSubscription:
        if self._client.is_closed:
            raise Unavailable(f"cannot subscribe to {subject}: the bus is closed")
        subscription = NatsSubscription(self, self._client, deliver)
        await subscription.open(subject, queue)
        return subscription

    async def flush(self) -> None:
        # A message to ourselves comes back after the server has seen all that went before it. The client's own flush
        # breaks its read loop when the answer comes after the time-out.
        await self._exchange(lambda inbox: self._send(inbox, b""), "our own inbox", FLUSH_TIMEOUT_S)

    async def try_flush(self) -> None:
        """`flush`, but silent if the servers do not answer."""
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
            self._client._pending_data_size = 0  # kept for a connection that will not come; sending it would raise
        try:
            await finish_within(self._client.close(), CLOSE_TIMEOUT_S)
        except (OSError, TimeoutError) as error:
            log.warning("nats_connection_cut_off", error=str(error) or "the server takes nothing more")
            abort(self._client)
        self._break_off_requests()
        self._reconnected.set()
        self._ended.set()

    def fail(self, error: Exception) -> None:
        """Make `run_until_closed` raise `error`; the first one wins."""
        if self._failure is None and not self._closing:
            self._failure = error
            self._ended.set()

    def new_inbox(self) -> str:
        """A subject that nobody else uses and that no answer comes to."""
        return f"{self._inbox}-{next(self._tokens)}"

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the connection broke and whenever it is back; returns what ends that."""
        self._reconnect_listeners.append(listener)
        return lambda: self._reconnect_listeners.remove(listener)

    async def _send(self, subject: str, data: Payload, reply: str = "", headers: dict[str, str] | None = None) -> None:
        if len(data) > self._client.max_payload:
            raise Invalid(f"message of {len(data)} bytes on {subject} is over the {self._client.max_payload} allowed")
        try:
            with honest_cancellation():
                await self._client.publish(subject, data, reply, headers)  # type: ignore[arg-type]  # any buffer will do
        except nats.errors.MaxPayloadError as error:
            raise Invalid(f"message of {len(data)} bytes on {subject} is over the maximum") from error
        except nats.errors.Error as error:
            raise Unavailable(f"cannot send on {subject}: {error}") from error

    async def _until_connected(self, wait_s: float) -> None:
        if self._client.is_connected and not self._gate.locked():
            async with self._gate:  # taken without waiting, or behind those who have waited
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
        if answer is not None and not answer.done():  # else the request was given up
            answer.set_result(message)

    def _break_off_requests(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(None)

    def _check_message_size(self) -> None:
        if self.message_bytes_max < MESSAGE_BYTES_MIN:
            raise Invalid(
                f"the nats server lets messages of {self.message_bytes_max} bytes pass, and {MESSAGE_BYTES_MIN} are "
                f"needed: set its max_payload (8 MiB is best)"
            )

    async def on_disconnected(self) -> None:
        """The client's callback when the connection broke."""
        self._break_off_requests()
        if not self._closing:
            self._disconnects.inc()
            log.warning("nats_disconnected")
        self._tell_listeners()

    async def on_reconnected(self) -> None:
        """The client's callback when it is connected again."""
        log.info("nats_reconnected")
        try:
            self._check_message_size()
        except Invalid as error:
            self.fail(error)
        self._reconnected.set()
        self._tell_listeners()

    async def on_closed(self) -> None:
        """The client's callback when it will not connect again: after `close`, or because the server told it so."""
        self.fail(Unavailable(f"the nats server closed the connection for good: {self._client.last_error}"))

    async def on_error(self, error: Exception) -> None:
        """The client's callback for whatever went wrong in the background."""
        if isinstance(error, nats.errors.SlowConsumerError):
            self._dropped.labels("slow").inc()
            log.error("bus_message_dropped", subject=error.subject, pending_bytes_max=PENDING_BYTES_MAX)
        elif rejection := parse_rejection(str(error)):
            self._take_rejection(rejection)
        else:
            log.debug("nats_error", error=str(error) or type(error).__name__)

    def _take_rejection(self, rejection: Rejection) -> None:
        self._rejections.note(rejection)
        if not rejection.is_subscription:
            self._dropped.labels("refused").inc()
            return
        # It would wait for ever for messages that never come, and look healthy.
        self.fail(Invalid(f"the nats server does not let its user subscribe to {rejection.subject}"))
        self._break_off_requests()

    def _tell_listeners(self) -> None:
        for listener in list(self._reconnect_listeners):
            listener()


class NatsConnection:
    """One connection to NATS with what runs over it."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    @property
    def bus(self) -> Bus:
        """The bus over this connection."""
        return self._bus

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        """The journal of `cluster`.

        `JournalLost` if there is none and `create` is false, `Invalid` if the stream there is not fit to be a journal,
        `Unavailable` if JetStream does not answer.
        """
        return await open_journal(self._bus, cluster, create=create, replicas=replicas)

    async def close(self) -> None:
        """Close the bus."""
        await self._bus.close()


async def connect_nats(
    url: str,
    *,
    name: str,
    user: str = "",
    password: str = "",
    registry: prometheus_client.CollectorRegistry | None = None,
    entropy: Entropy | None = None,
) -> NatsConnection:
    """Connect to one of the servers in `url`; `Unavailable` if none is there within `CONNECT_DEADLINE_S`.

    `Invalid` if an address cannot be one.

    Several servers are separated by commas and tried in the order given, again and again: a process that names the
    server of its own zone first has its bytes stay in the zone. When a connection breaks, the next in the list is
    taken, and kept while it lives.

    Answers come to `_INBOX.<user>.<random>`, so that the servers can bind each user to inboxes of its own; without a
    user to `_INBOX.<random>`. `Invalid` if the user is no subject token, or may not listen to that.
    """
    chance = (entropy or SystemEntropy()).take(12)
    wait_s = (RECONNECT_WAIT_MS_MIN + RECONNECT_WAIT_MS_SPREAD * chance[0] / 255) / 1000
    servers = [checked_server(server) for server in url.split(",")]
    client = ImpatientClient()
    owner = f"{check_token('nats user', user)}." if user else ""
    bus = NatsBus(client, f"_INBOX.{owner}{chance[1:].hex()}", registry)
    try:
        connecting = client.connect(
            servers,
            name=name,
            user=user or None,
            password=password or None,
            connect_timeout=CONNECT_ATTEMPT_S,  # type: ignore[arg-type]  # a float will do
            reconnect_time_wait=wait_s,  # type: ignore[arg-type]  # a float will do
            max_reconnect_attempts=-1,
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_UNANSWERED_MAX,
            dont_randomize=True,
            pending_size=SEND_BUFFER_BYTES_MAX,
            # No limit: one place per sender that waits. With a limit, the ping that finds out that the server hangs
            # would wait behind them.
            flusher_queue_size=0,
            error_cb=bus.on_error,
            disconnected_cb=bus.on_disconnected,
            reconnected_cb=bus.on_reconnected,
            closed_cb=bus.on_closed,
        )
        await finish_within(connecting, CONNECT_DEADLINE_S)
    except (TimeoutError, OSError, nats.errors.Error) as error:
        reason = client.last_error or error
        await bus.close()
        named = ",".join(map(without_password, servers))
        raise Unavailable(f"no nats server at {named}: {reason}") from error
    try:
        await bus.open()
        await bus.try_flush()  # the server tells that it refuses the inbox before it answers this
        if bus.failure is not None:
            raise bus.failure
    except BaseException:
        await bus.close()
        raise
    return NatsConnection(bus)
