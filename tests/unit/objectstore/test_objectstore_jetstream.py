"""Listings of a JetStream store while objects are deleted."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.contracts.subjects import landing_objects
from penstock.objectstore.jetstream import JetStreamStore
from penstock.objectstore.limits import JetStreamLimits

ROOT = landing_objects("l").removesuffix(">")


class Message:
    """A message as JetStream sends it."""

    def __init__(self, data: bytes = b"", subject: str = "", reply: str = "") -> None:
        self.data = data
        self.subject = subject
        self.reply = reply
        self.headers = {"Nats-Msg-Size": "7"}


class Stream:
    """A connection to a server whose stream loses some subjects right after it listed all of them."""

    def __init__(self, names: list[str], deleted: set[str]) -> None:
        self.messages = self
        self.names = names
        self.deleted = deleted
        self.listeners: dict[str, Callable[[Any], None]] = {}

    def new_inbox(self) -> str:
        return "inbox"

    async def listen(self, inbox: str, deliver: Callable[[Any], None]) -> Callable[[], Awaitable[None]]:
        self.listeners[inbox] = deliver

        async def end() -> None:
            del self.listeners[inbox]

        return end

    async def publish(self, subject: str, data: bytes) -> None:
        """Takes the request to delete a consumer."""

    async def exchange(self, subject: str, data: bytes, timeout_s: float, headers: object = None) -> Message:
        asked = json.loads(data)
        if "STREAM.INFO" in subject:
            state = {"subjects": {ROOT + name: 1 for name in self.names[asked["offset"] :]}}
            answer: dict[str, object] = {"state": state, "total": len(self.names)}
            self.names = [name for name in self.names if name not in self.deleted]
            return Message(json.dumps(answer).encode())
        assert "CONSUMER.CREATE" in subject, subject
        wanted = [name for name in self.names if ROOT + name in asked["config"]["filter_subjects"]]
        for place, name in enumerate(wanted, 1):
            reply = f"$JS.ACK.s.c.1.{place}.{place}.1000000.{len(wanted) - place}"
            self.listeners[asked["config"]["deliver_subject"]](Message(subject=ROOT + name, reply=reply))
        return Message(json.dumps({"name": "c", "num_pending": len(wanted)}).encode())


async def test_a_listing_is_full_although_objects_are_deleted_meanwhile() -> None:
    names = [f"k{number}" for number in range(8)]

    async def listed(deleted: set[str], limit: int) -> list[str]:
        store = JetStreamStore(Stream(names, deleted), "l", JetStreamLimits())  # type: ignore[arg-type]
        return [info.key for info in await store.list("", limit=limit)]

    assert await listed(set(), 3) == names[:3]
    assert await listed({"k1"}, 3) == ["k0", "k2", "k3"]
    assert await listed({"k0", "k1", "k2", "k3"}, 3) == ["k4", "k5", "k6"], "a page without objects ends a listing"
    assert await listed({"k6"}, 1000) == [name for name in names if name != "k6"]
    assert await listed(set(names), 3) == []
