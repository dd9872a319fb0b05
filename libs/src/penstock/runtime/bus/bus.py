"""The bus between services as they see it: publish, request and subscribe on subjects, with bytes as payload."""

from collections.abc import Awaitable, Callable
from typing import Protocol

Payload = bytes | bytearray | memoryview


class Inbound(Protocol):
    """A message that came in; a request expects one `respond`."""

    @property
    def subject(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    async def respond(self, data: Payload) -> None:
        """Answer the request; does nothing for a published message. Never raises for a requester that is gone."""


Handler = Callable[[Inbound], Awaitable[None]]


class Subscription(Protocol):
    """A subscription that can be ended."""

    async def unsubscribe(self) -> None:
        """No message is handed over after this returns."""


class Bus(Protocol):
    """Core NATS' promises and no more: at most once, in order from one publisher to one subscriber."""

    @property
    def message_bytes_max(self) -> int:
        """The largest payload that the servers take, in bytes; a larger one is split by its sender."""

    @property
    def is_connected(self) -> bool:
        """Whether a server is connected now."""

    async def publish(self, subject: str, data: Payload) -> None:
        """Send to whoever listens now; lost if nobody does or the connection breaks. `Invalid` if over the maximum."""

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        """Send and wait for one answer.

        `Undelivered` if nobody listened (it surely had no effect); `Unavailable` if no answer came in time or the
        connection broke (the outcome is unknown); `Invalid` if over the maximum.
        """

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Hand every message on `subject` (wildcards as in NATS) to `handler`, one after the other, in order.

        The next message waits until the handler returns, so a handler that waits for others starts a task of its
        own. With `queue` one subscriber of that name gets each message. Survives reconnects. An exception in a handler
        is fatal: it is raised where the bus is run (`run_until_closed`).
        """

    async def flush(self) -> None:
        """Return when the servers have seen all that was sent and subscribed; `Unavailable` if they do not answer."""

    async def run_until_closed(self) -> None:
        """Return after `close`; raise what a handler raised. A process awaits this in its task group."""

    async def close(self) -> None:
        """Stop taking messages in, send what is buffered, disconnect."""
