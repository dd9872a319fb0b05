"""A subscription of the nats client whose end loses no message, and whose handler's errors are reported."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from penstock.runtime.nats.cancellation import cancellations, honest_cancellation
from penstock.runtime.nats.patched_client import PatchedClient


class SubscriptionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one subscription holds that its handler has not taken.

    The senders' windows are far smaller. When a subscription reaches a limit, a window is broken and messages are lost.
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
        """Return when the server has seen what was sent before, or does not answer."""


class NatsSubscription:
    """One subscription; its handler runs in a task of the client's, one message after the other."""

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
        with honest_cancellation():
            self._inner = await self._client.subscribe(
                subject,
                queue=queue,
                cb=self._receive,
                pending_msgs_limit=self._limits.pending_messages_max,
                pending_bytes_limit=self._limits.pending_bytes_max,
            )

    async def _receive(self, message: Msg) -> None:
        try:
            await self._deliver(message)
        except asyncio.CancelledError:
            if not cancellations():  # else the client would end the subscription silently
                self._owner.fail(RuntimeError(f"the handler of {message.subject} was cancelled from within"))
            raise
        except Exception as error:  # noqa: BLE001  it is raised again where the bus is run
            self._owner.fail(error)

    async def unsubscribe(self) -> None:
        """Hand over what the server had already sent, then end; not to be called from the own handler."""
        inner, self._inner = self._inner, None
        if inner is None or self._client.is_closed:
            return
        if self._client.is_connected and self._owner.failure is None:
            # The client's own `unsubscribe` cancels a running handler, and its `drain` can break the connection when
            # the answer is late: hence the three steps of a drain, with our own round trip.
            await self._client.stop_delivery(inner)
            await self._owner.try_flush()
            await self._client.until_handled(inner)
        if not self._client.is_closed:
            with honest_cancellation():
                await inner.unsubscribe()

    async def drop(self) -> None:
        """End at once; messages that were not handed over are lost."""
        inner, self._inner = self._inner, None
        if inner is not None and not self._client.is_closed:
            with honest_cancellation():
                await inner.unsubscribe()
