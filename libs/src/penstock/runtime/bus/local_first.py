"""A bus for several roles in one process: requests between them are calls, and all other messages use the real bus.

A request has one receiver. If a role of this process subscribed to its subject, that role is the receiver. It gets the
sender's own buffers: no copy, no server. Published messages reach all subscribers, in this process too, through the
servers. So a request may overtake a message that the same sender published before.

All guarantees of `Bus` hold, with one more: a broken connection to the servers does not disturb a local request.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

import msgspec

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.bus.bus import Bus, Handler, Inbound, Payload, Subscription, joined, size_of


class LocalFirstLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the receiver in this process is not used, and how long a role that ends waits."""

    # A local member of a queue group that did not answer in time is avoided: another member may be healthy.
    silent_avoided_s: float = 5.0
    # A role that ends waits so long for servers that do not answer. Its process has more to close in five seconds.
    leave_s: float = 1.0


DEFAULT_LIMITS = LocalFirstLimits()


class SharedBus:
    """The real bus of a process, and the subscriptions of all its roles; `connect` makes the bus of a role."""

    def __init__(self, bus: Bus, *, limits: LocalFirstLimits = DEFAULT_LIMITS) -> None:
        self.bus = bus
        self.limits = limits
        self.roles: list[LocalFirstBus] = []
        self._receivers: dict[str, list[LocalSubscription]] = {}  # by subject

    def connect(self) -> "LocalFirstBus":
        """The bus of another role. The real bus is closed with the last of them."""
        role = LocalFirstBus(self)
        self.roles.append(role)
        return role

    def add(self, subscription: "LocalSubscription") -> None:
        """Pass local requests to a subscription from now on."""
        self._receivers.setdefault(subscription.subject, []).append(subscription)

    def remove(self, subscription: "LocalSubscription") -> None:
        """Pass no more local requests to a subscription."""
        receivers = self._receivers.get(subscription.subject, [])
        if subscription in receivers:
            receivers.remove(subscription)
            if not receivers:
                del self._receivers[subscription.subject]

    def receiver(self, subject: str) -> "LocalSubscription | None":
        """The subscription that takes requests on a subject, None if they use the real bus."""
        now_s = asyncio.get_running_loop().time()
        return next((each for each in self._receivers.get(subject, ()) if each.avoided_until_s <= now_s), None)

    async def disconnect(self, role: "LocalFirstBus") -> None:
        """Remove a role; close the real bus after the last one."""
        if role in self.roles:
            self.roles.remove(role)
            if not self.roles:
                await self.bus.close()


class _LocalInbound:
    """A request of another role, in the buffers of that role."""

    __slots__ = ("_answer", "_message_bytes_max", "buffers", "subject")

    def __init__(
        self, subject: str, data: Payload, answer: "asyncio.Future[Sequence[Buffer]]", message_bytes_max: int
    ) -> None:
        self.subject = subject
        self.buffers: Sequence[Buffer] = data if isinstance(data, list) else (data,)
        self._answer = answer
        self._message_bytes_max = message_bytes_max

    @property
    def data(self) -> bytes:
        return joined(self.buffers)

    async def respond(self, data: Payload) -> None:
        check_size(self.subject, data, self._message_bytes_max)
        if not self._answer.done():
            self._answer.set_result(data if isinstance(data, list) else (data,))


class LocalSubscription:
    """One subscription: its handler takes local requests and messages of the real bus, one after the other."""

    def __init__(self, role: "LocalFirstBus", shared: SharedBus, subject: str, handler: Handler, queue: str) -> None:
        self.subject = subject
        self.queue = queue
        self.avoided_until_s = 0.0
        self._role = role
        self._shared = shared
        self._handler = handler
        self._remote: Subscription | None = None
        self._turn = asyncio.Lock()
        self._waiting: deque[_LocalInbound] = deque()  # limited by the windows of the senders
        self._work: asyncio.Task[None] | None = None  # while requests wait
        self._has_ended = False

    async def open(self, *, may_be_denied: bool) -> None:
        """Subscribe at the real bus, then take local requests."""
        self._remote = await self._shared.bus.subscribe(
            self.subject, self._take, self.queue, may_be_denied=may_be_denied
        )
        self._shared.add(self)

    def offer(self, message: _LocalInbound) -> None:
        """Take a local request. A task of this object handles it, so a cancelled sender does not end the handler."""
        self._waiting.append(message)
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._handle_waiting())

    async def unsubscribe(self) -> None:
        """Handle all messages that were sent already, then end."""
        self._shared.remove(self)
        remote, self._remote = self._remote, None
        if remote is not None and not self._has_ended:
            await remote.unsubscribe()
        if self._work is not None:
            await asyncio.wait({self._work})
        self._has_ended = True

    def end(self) -> None:
        """Handle nothing more."""
        self._shared.remove(self)
        self._has_ended = True
        self._waiting.clear()
        if self._work is not None:
            self._work.cancel()

    async def leave(self) -> None:
        """After `end`: unsubscribe at the real bus, which other roles still use."""
        remote, self._remote = self._remote, None
        if remote is not None:
            await remote.unsubscribe()

    async def _take(self, message: Inbound) -> None:
        """Take a message of the real bus; an exception of the handler ends this role and no other."""
        async with self._turn:
            if self._has_ended:
                return
            try:
                await self._handler(message)
            except Exception as error:  # noqa: BLE001  `run_until_closed` of the role raises it
                self._role.fail(error)

    async def _handle_waiting(self) -> None:
        try:
            while self._waiting:
                async with self._turn:
                    await self._handler(self._waiting.popleft())
                await asyncio.sleep(0)  # a sender that is always faster must not keep the loop from other work
        except asyncio.CancelledError:
            if not self._has_ended:
                self._role.fail(RuntimeError(f"the handler of {self.subject} cancelled itself"))
            raise
        except Exception as error:  # noqa: BLE001  `run_until_closed` raises it
            self._waiting.clear()
            self._role.fail(error)
        finally:
            self._work = None


class LocalFirstBus:
    """`Bus` of one role in a process with several."""

    def __init__(self, shared: SharedBus) -> None:
        self._shared = shared
        self._subscriptions: list[LocalSubscription] = []
        self._asking: set[asyncio.Future[Sequence[Buffer]]] = set()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    @property
    def message_bytes_max(self) -> int:
        return self._shared.bus.message_bytes_max

    @property
    def is_connected(self) -> bool:
        return not self._is_closed and self._shared.bus.is_connected

    def is_local(self, subject: str) -> bool:
        return self._shared.receiver(subject) is not None

    async def publish(self, subject: str, data: Payload) -> None:
        if self._is_closed:
            check_size(subject, data, self.message_bytes_max)
            return
        await self._shared.bus.publish(subject, data)

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        return joined(await self.request_buffers(subject, data, timeout_s))

    async def request_buffers(self, subject: str, data: Payload, timeout_s: float) -> Sequence[Buffer]:
        receiver = None if self._is_closed else self._shared.receiver(subject)
        if receiver is not None:
            check_size(subject, data, self.message_bytes_max)
            return await self._ask(receiver, data, timeout_s)
        if self._is_closed:
            await asyncio.sleep(0)
            raise Unavailable("the bus is closed")
        return await self._shared.bus.request_buffers(subject, data, timeout_s)

    async def _ask(self, receiver: LocalSubscription, data: Payload, timeout_s: float) -> Sequence[Buffer]:
        answer: asyncio.Future[Sequence[Buffer]] = asyncio.get_running_loop().create_future()
        self._asking.add(answer)
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                receiver.offer(_LocalInbound(receiver.subject, data, answer, self.message_bytes_max))
                return await answer
        except TimeoutError as error:
            assert deadline.expired(), "an answer is no exception"
            if receiver.queue:
                receiver.avoided_until_s = asyncio.get_running_loop().time() + self._shared.limits.silent_avoided_s
            raise Unavailable(f"no answer on {receiver.subject} within {timeout_s:g} s") from error
        finally:
            self._asking.discard(answer)

    async def subscribe(
        self, subject: str, handler: Handler, queue: str = "", *, may_be_denied: bool = False
    ) -> LocalSubscription:
        if self._is_closed:
            raise Unavailable(f"cannot subscribe to {subject}: the bus is closed")
        subscription = LocalSubscription(self, self._shared, subject, handler, queue)
        await subscription.open(may_be_denied=may_be_denied)
        self._subscriptions.append(subscription)
        return subscription

    async def flush(self) -> None:
        if self._is_closed:
            raise Unavailable("the bus is closed")
        await self._shared.bus.flush()

    async def run_until_closed(self) -> None:
        real = asyncio.create_task(self._shared.bus.run_until_closed())
        try:
            await asyncio.wait({real, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            real.cancel()
            await asyncio.wait({real})
        if not real.cancelled():
            real.result()
        if self._ended.done():
            self._ended.result()

    def fail(self, error: Exception) -> None:
        """Make `run_until_closed` raise `error`; only the first error counts."""
        if not self._ended.done() and not self._is_closed:
            self._ended.set_exception(error)
            self._ended.exception()  # read, so that asyncio does not report it if nothing runs this bus

    async def close(self) -> None:
        """End this role's subscriptions and requests; the last role closes the real bus."""
        was_closed, self._is_closed = self._is_closed, True
        for subscription in self._subscriptions:
            subscription.end()
        for answer in self._asking:
            if not answer.done():
                answer.set_exception(Unavailable("the connection broke while waiting for an answer: the bus is closed"))
        if not self._ended.done():
            self._ended.set_result(None)
        await self._shared.disconnect(self)
        if self._shared.roles and not was_closed:
            await self._leave()

    async def _leave(self) -> None:
        """Unsubscribe at the real bus, so that no server sends messages to a role that is gone."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._shared.limits.leave_s), asyncio.TaskGroup() as group:
                for subscription in self._subscriptions:
                    group.create_task(subscription.leave())


def check_size(subject: str, data: Payload, message_bytes_max: int) -> None:
    """`Invalid` if the message is larger than the servers allow, so that a role finds the same limit everywhere."""
    size_bytes = size_of(data)
    if size_bytes > message_bytes_max:
        raise Invalid(f"message of {size_bytes} bytes on {subject} is over the limit of {message_bytes_max}")
