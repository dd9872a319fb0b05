"""Connections and subscriptions that are cancelled at any moment leave nothing in the client."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from nats.aio.msg import Msg

from penstock.contracts.errors import Invalid
from penstock.runtime.nats.client import connect_nats
from penstock.runtime.nats.patched_client import PatchedClient
from penstock.runtime.nats.subscription import NatsSubscription
from tests.testkit.cancelling import turns


class FakeInner:
    """The client's own subscription."""

    def __init__(self, client: "FakeClient") -> None:
        self._client = client

    async def unsubscribe(self) -> None:
        self._client.subscriptions.remove(self)
        await turns(1)


class FakeClient:
    """A client whose buffer is full, so that each call waits. Like nats-py, it swallows a cancellation of a flush."""

    is_closed = False
    is_connected = True

    def __init__(self) -> None:
        self.subscriptions: list[FakeInner] = []

    async def subscribe(self, _subject: str, **_settings: Any) -> FakeInner:
        inner = FakeInner(self)
        self.subscriptions.append(inner)
        with contextlib.suppress(asyncio.CancelledError):
            await turns(2)
        return inner

    async def stop_delivery(self, _inner: FakeInner) -> None:
        await turns(2)

    async def until_handled(self, _inner: FakeInner) -> None:
        await turns(2)


class Owner:
    """A connection that works."""

    failure = None

    def fail(self, error: Exception) -> None:
        raise error

    async def try_flush(self) -> None:
        await turns(2)


async def ignore(_message: Msg) -> None:
    """Handle no message."""


async def cancelled_after_each_turn(
    work: Callable[[], Coroutine[Any, Any, Any]], check: Callable[[], Awaitable[None]]
) -> int:
    """Cancel `work` after 1 turn, 2 turns, and so on until it ends by itself; `check` follows each cancellation."""
    for count in itertools.count(1):
        working = asyncio.create_task(work())
        await turns(count)
        if working.done():
            with contextlib.suppress(Invalid):
                working.result()
            return count
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        await check()
    raise AssertionError("the work ends")


def subscription_of(client: FakeClient) -> NatsSubscription:
    return NatsSubscription(Owner(), client, ignore)  # type: ignore[arg-type]  # the part of the client in use


async def test_a_subscription_that_is_cancelled_while_it_opens_is_not_in_the_client() -> None:
    client = FakeClient()

    async def check() -> None:
        assert not client.subscriptions

    assert await cancelled_after_each_turn(lambda: subscription_of(client).open("subject", ""), check) > 1


async def test_a_subscription_that_is_cancelled_while_it_ends_is_not_in_the_client() -> None:
    """The client would subscribe again after each reconnect, and servers would send messages that nothing handles."""
    client = FakeClient()
    made: list[NatsSubscription] = []

    async def begin() -> None:
        made.append(subscription_of(client))
        await made[-1].open("subject", "queue")

    async def check() -> None:
        assert not client.subscriptions
        await begin()

    await begin()
    assert await cancelled_after_each_turn(lambda: made[-1].unsubscribe(), check) > 6


class ConnectingClient(PatchedClient):
    """A client that connects to a server after some turns; the server allows only small messages."""

    is_open = False

    @property
    def is_connected(self) -> bool:
        return self.is_open

    @property
    def max_payload(self) -> int:
        return 1

    async def connect(self, *_servers: Any, **_settings: Any) -> None:
        await turns(2)
        self.is_open = True

    async def close(self) -> None:
        await turns(2)
        self.is_open = False

    def abort(self) -> None:
        self.is_open = False


async def test_a_cancelled_attempt_to_connect_leaves_no_connection() -> None:
    clients: list[ConnectingClient] = []

    async def work() -> None:
        clients.append(ConnectingClient())
        await connect_nats("nats://127.0.0.1:1", name="test", client=clients[-1])

    async def check() -> None:
        assert not any(client.is_open for client in clients)

    assert await cancelled_after_each_turn(work, check) > 6
    with pytest.raises(Invalid, match="allows messages of 1 bytes"):
        await work()
