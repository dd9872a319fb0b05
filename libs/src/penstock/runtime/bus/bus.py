"""The bus as a service sees it: publish, request and subscribe on subjects, with bytes as payload."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from penstock.contracts.codec import Buffer

# One message, perhaps in several buffers. They must not change after the call that sends them.
Payload = Buffer | list[Buffer]


class Inbound(Protocol):
    """A message that came in; a request expects one `respond`."""

    @property
    def subject(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The data as it came; in the sender's own buffers, if the sender is in the same process."""

    async def respond(self, data: Payload) -> None:
        """Answer the request; does nothing for a published message. Never raises because the requester is gone."""


Handler = Callable[[Inbound], Awaitable[None]]


class Subscription(Protocol):
    """A subscription that can be ended."""

    async def unsubscribe(self) -> None:
        """No message is handed over after this returns."""


class Bus(Protocol):
    """The guarantees of core NATS, no more: at most once, in order from one publisher to one subscriber."""

    @property
    def message_bytes_max(self) -> int:
        """The largest payload that the servers accept, in bytes; the sender splits a larger one."""

    @property
    def is_connected(self) -> bool:
        """Whether a server is connected now."""

    async def publish(self, subject: str, data: Payload) -> None:
        """Send to all present subscribers; lost if there are none or the connection breaks.

        `Invalid` if the payload is over the maximum.
        """

    async def request(self, subject: str, data: Payload, timeout_s: float) -> bytes:
        """Send and wait for one answer.

        `Undelivered` if there was no subscriber: the request had no effect. `Unavailable` if no answer came in time
        or the connection broke: the outcome is unknown. `Invalid` if the payload is over the maximum.
        """

    async def request_buffers(self, subject: str, data: Payload, timeout_s: float) -> Sequence[Buffer]:
        """As `request`, with the answer as it came."""

    def is_local(self, subject: str) -> bool:
        """Whether this process itself answers requests on the subject."""

    async def subscribe(
        self, subject: str, handler: Handler, queue: str = "", *, may_be_denied: bool = False
    ) -> Subscription:
        """Pass every message on `subject` (wildcards as in NATS) to `handler`, one after the other, in order.

        The next message waits until the handler returns. So a handler with long waits starts a task for them. With
        `queue`, only one subscriber of that name gets each message. The subscription survives reconnects. An
        exception in a handler is fatal: `run_until_closed` raises it. So is a server that denies the subscription,
        unless `may_be_denied`: then no message comes.
        """

    async def flush(self) -> None:
        """Return when the servers have processed all messages and subscriptions sent so far.

        `Unavailable` if they do not answer.
        """

    async def run_until_closed(self) -> None:
        """Return after `close`; raise the exception of a handler. A process awaits this in its task group."""

    async def close(self) -> None:
        """Stop taking messages in, send the buffered messages, disconnect."""


def size_of(payload: Payload) -> int:
    """The size of a message in bytes."""
    return sum(map(len, payload)) if isinstance(payload, list) else len(payload)


def joined(payload: Payload | Sequence[Buffer]) -> bytes:
    """The message in one buffer; copies it unless it is there already."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    return joined(payload[0]) if len(payload) == 1 else b"".join(payload)
