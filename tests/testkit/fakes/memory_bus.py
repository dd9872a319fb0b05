"""A bus in memory with the guarantees of NATS: queue groups, order, no responders, lost connections."""

import asyncio
import enum
import functools
import itertools
from collections import deque

from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.runtime.bus.bus import Handler, Payload, joined, size_of
from tests.testkit.fakes.answers import within

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
OFFLINE_WAIT_S = 1.0  # as the real bus does


class Nothing(enum.Enum):
    """Why a request gets no answer."""

    NO_SUBSCRIBER = enum.auto()
    CONNECTION_BROKE = enum.auto()


Answer = bytes | Nothing


class MemoryInbound:
    """A message as handlers see it."""

    def __init__(self, bus: "MemoryBus", subject: str, data: bytes, reply: str) -> None:
        self.subject = subject
        self.data = data
        self.buffers = (data,)
        self._bus = bus
        self._reply = reply

    async def respond(self, data: Payload) -> None:
        if self._reply:
            await self._bus.publish(self._reply, data)


class MemorySubscription:
    """One subscription, with a task that passes its messages to the handler one by one."""

    def __init__(self, bus: "MemoryBus", subject: str, handler: Handler, queue: str) -> None:
        self.bus = bus
        self.subject = subject
        self.queue = queue
        self._handler = handler
        self._waiting: deque[MemoryInbound] = deque()
        self._sleeper: asyncio.Future[None] | None = None  # the idle task waits for this
        self._is_idle = True
        self._idle = asyncio.Event()  # set when the task becomes idle
        self._task = asyncio.create_task(self._handle_messages())

    def deliver(self, message: MemoryInbound) -> None:
        """Take a message for the handler."""
        if self._task.done():
            return
        self._waiting.append(message)
        self._is_idle = False
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def _handle_messages(self) -> None:
        loop, waiting, handler = asyncio.get_running_loop(), self._waiting, self._handler
        while True:
            while waiting:
                try:
                    await handler(waiting.popleft())
                except Exception as error:  # noqa: BLE001  as in the real bus: `run_until_closed` raises it
                    self.bus.fail(error)
                    self._rest()
                    return
            self._rest()
            self._sleeper = loop.create_future()
            await self._sleeper

    def _rest(self) -> None:
        self._is_idle = True
        self._idle.set()

    async def unsubscribe(self) -> None:
        """Handle the messages that were sent already, then end."""
        if self.bus.is_closed:  # sent messages are lost, too
            return self.end()
        try:
            await self.bus.hub.withdraw(self)
            if not self._is_idle:
                self._idle.clear()
                await self._idle.wait()
        finally:
            self.end()

    def end(self) -> None:
        """End the subscription at once."""
        self.bus.hub.remove(self)
        self._task.cancel()
        self._rest()


class MemoryBus:
    """`Bus` of one connection to a `MemoryHub`."""

    def __init__(self, hub: "MemoryHub", name: str) -> None:
        self.hub = hub
        self.name = name
        self.has_failed = False
        self.is_connected = True
        self._connected = asyncio.Event()
        self._connected.set()
        self._ended = asyncio.Event()
        self._failure: Exception | None = None
        self._closed = False
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._tokens = itertools.count()

    @property
    def message_bytes_max(self) -> int:
        return self.hub.message_bytes_max

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed for ever."""
        return self._closed

    async def publish(self, subject: str, data: Payload) -> None:
        self._check_size(subject, data)
        if self.is_connected:
            self.hub.send(self, subject, joined(data), "")

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        self._check_size(subject, data)
        await self._until_connected(min(timeout_s, OFFLINE_WAIT_S))
        reply = f"_INBOX.{self.name}.{next(self._tokens)}"
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = answer
        try:
            self.hub.send(self, subject, joined(data), reply)
            received = await within(timeout_s, answer)
        except TimeoutError as error:
            raise Unavailable(f"no answer on {subject} within {timeout_s:g} s") from error
        finally:
            del self._waiting[reply]
        if received is Nothing.NO_SUBSCRIBER:
            await asyncio.sleep(0)
            raise Undelivered(f"no subscriber on {subject}")
        if received is Nothing.CONNECTION_BROKE:
            raise Unavailable(f"the connection broke while waiting for an answer on {subject}")
        return received

    async def request_buffers(self, subject: str, data: Payload, timeout_s: float) -> tuple[bytes]:
        return (await self.request(subject, data, timeout_s),)

    def is_local(self, subject: str) -> bool:
        return False

    async def subscribe(
        self, subject: str, handler: Handler, queue: str = "", *, may_be_denied: bool = False
    ) -> MemorySubscription:
        if self._closed:
            raise Unavailable(f"cannot subscribe to {subject}: the bus is closed")
        subscription = MemorySubscription(self, subject, handler, queue)
        self.hub.add(subscription)
        return subscription

    async def flush(self) -> None:
        await self.hub.echo(self)
        await self._until_connected(OFFLINE_WAIT_S)

    async def run_until_closed(self) -> None:
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self._closed, self.is_connected = True, False
        self.hub.disconnect(self)
        self._break_off_requests()
        self._connected.set()
        self._ended.set()
        await asyncio.sleep(0)

    def fail(self, error: Exception) -> None:
        """Make `run_until_closed` raise `error`."""
        if self._failure is None and not self._closed:
            self._failure, self.has_failed = error, True
            self._ended.set()

    def cut(self) -> None:
        """Break the connection: the outcome of requests in flight is unknown, messages in both directions are lost."""
        self.is_connected = False
        self._connected.clear()
        self._break_off_requests()

    def mend(self) -> None:
        """Connect again, with the same subscriptions."""
        self.is_connected = not self._closed
        self._connected.set()

    def take_answer(self, reply: str, data: "Answer") -> None:
        """Take the answer to one of this connection's requests, or the reason why there is none."""
        answer = self._waiting.get(reply)
        if answer is not None and not answer.done():
            answer.set_result(data)

    def _break_off_requests(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(Nothing.CONNECTION_BROKE)

    def _check_size(self, subject: str, data: Payload) -> None:
        if (size_bytes := size_of(data)) > self.message_bytes_max:
            raise Invalid(f"message of {size_bytes} bytes on {subject} is over the limit of {self.message_bytes_max}")

    async def _until_connected(self, wait_s: float) -> None:
        if self.is_connected:
            return
        try:
            async with asyncio.timeout(wait_s):
                await self._connected.wait()
        except TimeoutError as error:
            raise Undelivered("not connected to a nats server") from error
        if self._closed:
            await asyncio.sleep(0)
            raise Unavailable("the bus is closed")


class MemoryHub:
    """The server of one test's buses. `connect` makes a bus, whose `cut` and `mend` break and repair its connection."""

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.message_bytes_max = message_bytes_max
        self.published: list[tuple[str, bytes]] = []  # all messages except answers, for tests to read
        self._buses: dict[str, MemoryBus] = {}
        self._subscriptions: list[MemorySubscription] = []
        self._turns: dict[tuple[str, str], int] = {}

    def connect(self, name: str) -> MemoryBus:
        """A new connection."""
        assert name not in self._buses, f"{name} is connected already"
        bus = self._buses[name] = MemoryBus(self, name)
        return bus

    def add(self, subscription: MemorySubscription) -> None:
        """Route messages to the subscription from now on."""
        self._subscriptions.append(subscription)

    def remove(self, subscription: MemorySubscription) -> None:
        """Route no more to the subscription."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    async def withdraw(self, subscription: MemorySubscription) -> None:
        """Route no more to the subscription; return when all messages routed before have arrived."""
        self.remove(subscription)

    def disconnect(self, bus: MemoryBus) -> None:
        """End the subscriptions of a closed connection."""
        self._buses.pop(bus.name, None)
        for subscription in [each for each in self._subscriptions if each.bus is bus]:
            subscription.end()

    def kill(self, name: str) -> None:
        """End the connection as the crash of its process does: nothing more comes from it or goes to it."""
        bus = self._buses[name]
        bus.cut()
        self.disconnect(bus)

    async def close(self) -> None:
        """Close all connections."""
        for bus in list(self._buses.values()):
            await bus.close()

    def send(self, sender: MemoryBus, subject: str, data: bytes, reply: str) -> None:
        """Take a message from a connection."""
        if not self.route(subject, data, reply) and reply:
            sender.take_answer(reply, Nothing.NO_SUBSCRIBER)

    async def echo(self, bus: MemoryBus) -> None:
        """Return when all messages of the connection are taken, and all earlier messages to it have arrived."""
        await asyncio.sleep(0)

    def route(self, subject: str, data: bytes, reply: str) -> bool:
        """Deliver a message to all matching subscriptions; whether there was one."""
        if subject.startswith("_INBOX."):
            return self._route_answer(subject, data)
        self.published.append((subject, data))
        groups: dict[tuple[str, str], list[MemorySubscription]] = {}
        for subscription in self._subscriptions:
            if subscription.bus.is_connected and matches(subscription.subject, subject):
                alone = "" if subscription.queue else str(id(subscription))
                groups.setdefault((subscription.queue, alone), []).append(subscription)
        for key, members in groups.items():
            turn = self._turns[key] = self._turns.get(key, -1) + 1
            member = members[turn % len(members)]
            member.deliver(MemoryInbound(member.bus, subject, data, reply))
        return bool(groups)

    def _route_answer(self, subject: str, data: bytes) -> bool:
        bus = self._buses.get(subject.split(".")[1])
        if bus is None or not bus.is_connected:
            return False
        bus.take_answer(subject, data)
        return True


@functools.lru_cache(maxsize=4096)
def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern: `*` is any one token, `>` at the end is one or more."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and matches(".".join(wanted[:-1]), ".".join(given[: len(wanted) - 1]))
    return len(wanted) == len(given) and all(want in ("*", have) for want, have in zip(wanted, given, strict=True))
