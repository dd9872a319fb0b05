"""The messages of one JetStream consumer as journal entries, in strict order and in bounded memory."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from penstock.runtime.journal import JournalEntry


class TailLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How soon a dead consumer is noticed, and the size of a group of entries."""

    # An idle consumer sends a heartbeat this often.
    heartbeat_ms: int = 500
    heartbeats_missed_max: int = 3
    # One group of entries. It is small, so that a replica can do other work between groups.
    group_entries_max: int = 256
    group_bytes_max: int = 4 * 1024 * 1024
    # The server removes an abandoned consumer after this time; 0 means the server's default (5 s).
    consumer_inactive_s: float = 0.0


DEFAULT_LIMITS = TailLimits()


class RawMessage(Protocol):
    """A message; JetStream puts its own data into the headers and the reply subject."""

    @property
    def subject(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def reply(self) -> str: ...

    @property
    def headers(self) -> dict[str, str] | None: ...


class Feed:
    """Turns a push consumer's messages into entries, until the order is broken.

    Memory is bounded by JetStream's flow control. The server continues only after the answer to its flow control
    message. The feed sends this answer when the entries before it were taken.
    """

    def __init__(
        self, publish: Callable[[str, bytes], Awaitable[None]], first: int, *, limits: TailLimits = DEFAULT_LIMITS
    ) -> None:
        self._publish = publish
        self._limits = limits
        self._expected = first
        self._consumed = 0  # the number of messages sent, as the consumer counts them
        self._waiting: deque[JournalEntry | str] = deque()  # a string is a flow control subject to answer
        self._wake = asyncio.Event()
        self._heard_s = asyncio.get_running_loop().time()
        self._ends = contextlib.AsyncExitStack()
        self._closers: list[Callable[[], None]] = []
        self.broken = ""  # the reason why no more entries come in

    def on_close(self, closer: Callable[[], None]) -> None:
        """Call `closer` when the feed is closed."""
        self._closers.append(closer)

    def end_with(self, end: Callable[[], Awaitable[None]]) -> None:
        """Await `end` when the feed is closed."""
        self._ends.push_async_callback(end)

    def interrupt(self) -> None:
        """Break the feed: the connection broke or is new, so messages may have been lost."""
        self._break("the connection broke")

    def deliver(self, message: RawMessage) -> None:
        """Take one message in."""
        self._heard_s = asyncio.get_running_loop().time()
        if self.broken:
            return
        reply = message.reply
        if reply.startswith("$JS.ACK."):
            self._take_entry(reply.split("."), message.data)
        elif reply:
            self._waiting.append(reply)
        else:
            self._take_heartbeat(message.headers or {})
            return
        self._wake.set()

    def _take_entry(self, fields: list[str], data: bytes) -> None:
        # $JS.ACK.stream.consumer.deliveries.sequence.consumer sequence.time.pending; before the stream there may be
        # a domain and an account
        place = 5 if len(fields) == 9 else 7
        sequence = int(fields[place])
        self._consumed = int(fields[place + 1])
        if sequence == self._expected:
            self._waiting.append(JournalEntry(sequence, data))
            self._expected += 1
        elif sequence > self._expected:
            self._break(f"entry {sequence} came instead of {self._expected}")

    def _take_heartbeat(self, headers: dict[str, str]) -> None:
        if stalled := headers.get("Nats-Consumer-Stalled"):
            self._waiting.append(stalled)
            self._wake.set()
        sent = int(headers.get("Nats-Last-Consumer", self._consumed))
        if sent != self._consumed:
            self._break(f"{sent} messages were sent but {self._consumed} came")

    def _break(self, cause: str) -> None:
        self.broken = self.broken or cause
        self._wake.set()

    async def take(self) -> list[JournalEntry]:
        """Wait for the next entries and return them; none when the feed is broken and all its entries were taken."""
        while True:
            group = await self._take_waiting()
            if group or self.broken:
                return group
            self._wake.clear()
            await self._wait()

    async def _take_waiting(self) -> list[JournalEntry]:
        group: list[JournalEntry] = []
        group_bytes = 0
        waiting, limits = self._waiting, self._limits
        while waiting and len(group) < limits.group_entries_max and group_bytes < limits.group_bytes_max:
            item = waiting.popleft()
            if isinstance(item, str):
                await self._publish(item, b"")
            else:
                group.append(item)
                group_bytes += len(item.data)
        return group

    async def _wait(self) -> None:
        silence_s = self._limits.heartbeat_ms * self._limits.heartbeats_missed_max / 1000
        try:
            async with asyncio.timeout_at(self._heard_s + silence_s):
                await self._wake.wait()
        except TimeoutError:
            if self._heard_s + silence_s <= asyncio.get_running_loop().time():
                self._break("the consumer fell silent")

    async def close(self) -> None:
        """End the consumer and the subscription; both are ended if this is cancelled."""
        for closer in self._closers:
            closer()
        self._closers.clear()
        self._waiting.clear()
        await self._ends.aclose()
