"""One JetStream consumer's messages as journal entries in strict order, in bounded memory."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.runtime.journal import JournalEntry

HEARTBEAT_MS = 500  # how often an idle consumer says that it lives
HEARTBEATS_MISSED_MAX = 3
GROUP_ENTRIES_MAX = 256  # handed over at once, so that a replica can breathe between groups
GROUP_BYTES_MAX = 4 * 1024 * 1024


class RawMessage(Protocol):
    """A message with what JetStream says in its headers and its reply subject."""

    @property
    def data(self) -> bytes: ...

    @property
    def reply(self) -> str: ...

    @property
    def headers(self) -> dict[str, str] | None: ...


class Feed:
    """Takes a push consumer's messages in and hands entries out, until something breaks the order.

    Memory is bounded by JetStream's flow control: the server sends on only after we answered its flow control message,
    and that answer leaves when the entries before it were taken.
    """

    def __init__(self, publish: Callable[[str, bytes], Awaitable[None]], first: int) -> None:
        self._publish = publish
        self._expected = first
        self._consumed = 0  # the consumer's own count of what it sent
        self._waiting: deque[JournalEntry | str] = deque()  # a string is a flow control subject to answer
        self._wake = asyncio.Event()
        self._heard_s = asyncio.get_running_loop().time()
        self._ends: list[Callable[[], Awaitable[None]]] = []
        self._closers: list[Callable[[], None]] = []
        self.broken = ""  # why no more entries come in

    def on_close(self, closer: Callable[[], None]) -> None:
        """Call `closer` when the feed is closed."""
        self._closers.append(closer)

    def end_with(self, end: Callable[[], Awaitable[None]]) -> None:
        """Await `end` when the feed is closed."""
        self._ends.append(end)

    def interrupt(self) -> None:
        """The connection is not what it was: messages may have been lost."""
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
        # $JS.ACK.stream.consumer.deliveries.sequence.consumer sequence.time.pending; a domain and an account may
        # stand before the stream
        place = 5 if len(fields) == 9 else 7
        sequence = int(fields[place])
        self._consumed = int(fields[place + 1])
        if sequence == self._expected:
            self._waiting.append(JournalEntry(sequence, data))
            self._expected += 1
        elif sequence > self._expected:
            self._break(f"entry {sequence} came when {self._expected} was due")

    def _take_heartbeat(self, headers: dict[str, str]) -> None:
        if stalled := headers.get("Nats-Consumer-Stalled"):
            self._waiting.append(stalled)
            self._wake.set()
        sent = int(headers.get("Nats-Last-Consumer", self._consumed))
        if sent != self._consumed:
            self._break(f"{sent} messages were sent and {self._consumed} came")

    def _break(self, cause: str) -> None:
        self.broken = self.broken or cause
        self._wake.set()

    async def take(self) -> list[JournalEntry]:
        """The next entries, as soon as there are any; none when the feed is broken and all it had was taken."""
        while True:
            group = await self._take_waiting()
            if group or self.broken:
                return group
            self._wake.clear()
            await self._wait()

    async def _take_waiting(self) -> list[JournalEntry]:
        group: list[JournalEntry] = []
        group_bytes = 0
        waiting = self._waiting
        while waiting and len(group) < GROUP_ENTRIES_MAX and group_bytes < GROUP_BYTES_MAX:
            item = waiting.popleft()
            if isinstance(item, str):
                await self._publish(item, b"")
            else:
                group.append(item)
                group_bytes += len(item.data)
        return group

    async def _wait(self) -> None:
        silent_at_s = self._heard_s + HEARTBEAT_MS * HEARTBEATS_MISSED_MAX / 1000
        try:
            async with asyncio.timeout_at(silent_at_s):
                await self._wake.wait()
        except TimeoutError:
            if self._heard_s + HEARTBEAT_MS * HEARTBEATS_MISSED_MAX / 1000 <= asyncio.get_running_loop().time():
                self._break("the consumer fell silent")

    async def close(self) -> None:
        """End the consumer and the subscription."""
        for closer in self._closers:
            closer()
        for end in reversed(self._ends):
            await end()
        self._ends.clear()
        self._closers.clear()
        self._waiting.clear()
