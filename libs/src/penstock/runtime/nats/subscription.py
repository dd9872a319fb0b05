"""A subscription of the nats client that loses no message when it ends, and reports errors of its handler."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from penstock.runtime.nats.cancellation import cancellations, honest_cancellation
from penstock.runtime.nats.patched_client import PatchedClient


class SubscriptionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one subscription holds for its handler.

    The senders' windows are far smaller. A subscription reaches a limit only if a sender ignores its window. Then
    messages are lost.
    """

    pending_bytes_max: int = 512 * 1024 * 1024
    pending_messages_max: int = 1024 * 1024


DEFAULT_LIMITS = SubscriptionLimits()


class Owner(Protocol):
    """The connection that a subscription belongs to."""

    @property
    def failure(self) -> Exception | None: ...

    def fail(self, error: Exception) -> None:
        """End the process with this error."""

    async def try_flush(self) -> None:
        """Return when the server has handled all messages sent before, or does not answer."""


class NatsSubscription:
    """One subscription; its handler runs in a task of the client, one message after the other.

    If the handler never waits, all queued messages are handled in one turn of the event loop. Sequencers need that
    (stall_detector.py): commands that waited in a queue during a stall must not arrive after the stall has settled.
    """

    def __init__(
        self,
        owner: Owner,
        client: PatchedClient,
        deliver: Callable[[Msg], Awaitable[None]],
        *,
        limits: SubscriptionLimits = DEFAULT_LIMITS,
    ) -> None:
        self._owner = owner
        self._client = client
        self._deliver = deliver
        self._limits = limits
        self._inner: ClientSubscription | None = None

    async def open(self, subject: str, queue: str) -> None:
        """Ask the server for the messages; a rejection comes later, to the connection's error callback."""
        try:
            with honest_cancellation():
                self._inner = await self._client.subscribe(
                    subject,
                    queue=queue,
                    cb=self._receive,
                    pending_msgs_limit=self._limits.pending_messages_max,
                    pending_bytes_limit=self._limits.pending_bytes_max,
                )
        except asyncio.CancelledError:
            await self.drop()  # the client subscribed all the same, and would again after each reconnect
            raise

    async def _receive(self, message: Msg) -> None:
        try:
            await self._deliver(message)
        except asyncio.CancelledError:
            if not cancellations():  # else the client would end the subscription silently
                self._owner.fail(RuntimeError(f"the handler of {message.subject} cancelled itself"))
            raise
        except Exception as error:  # noqa: BLE001  `run_until_closed` raises it again
            self._owner.fail(error)

    async def unsubscribe(self) -> None:
        """Deliver all messages that the server has already sent, then end. The own handler must not call this.

        After a cancellation it ends at once.
        """
        inner, self._inner = self._inner, None
        if inner is None or self._client.is_closed:
            return
        try:
            if self._client.is_connected and self._owner.failure is None:
                # The client's own `unsubscribe` cancels a running handler. Its `drain` can break the connection when
                # the answer is late. So these are the three steps of a drain, with a round trip of this module.
                await self._client.stop_delivery(inner)
                await self._owner.try_flush()
                await self._client.until_handled(inner)
        finally:
            if not self._client.is_closed:
                with honest_cancellation():
                    await inner.unsubscribe()

    async def drop(self) -> None:
        """End at once; messages that were not delivered are lost."""
        inner, self._inner = self._inner, None
        if inner is not None and not self._client.is_closed:
            with honest_cancellation():
                await inner.unsubscribe()
