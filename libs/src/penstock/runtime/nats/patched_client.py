"""nats-py's client with changed private parts; no other module touches private parts of nats-py.

nats-py may change these parts in any release. So it is pinned below the next minor release.
tests/unit/runtime/nats/test_nats_py_private_parts.py lists each part with its use, and fails when its shape changes.
"""

from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.protocol.command import PUB_OP

from penstock.runtime.bus.bus import Payload, size_of
from penstock.runtime.nats.bulk_messages import (
    BULK_BYTES_MIN,
    CRLF,
    BufferedPayload,
    BulkTransport,
    OneCopyParser,
)


class PatchedClient(Client):
    """Sends large payloads without copies, and leaves a dead server at once.

    A payload must not change after the call of `publish`.

    When nats-py closes the socket of a dead server, it first waits until all unsent bytes are written. If the server
    hangs, its kernel keeps the connection open but accepts no bytes. So that wait can last for ever. nats-py then sends
    its unwritten bytes to the next server. Their sender already got an error for the broken connection, and may have
    sent them again. So this client drops them.
    """

    _ps: OneCopyParser
    _transport: BulkTransport | None

    def __init__(self) -> None:
        super().__init__()
        self._ps = OneCopyParser(self)

    @property
    def is_clustered(self) -> bool:
        """Whether the present or last server is one of a cluster."""
        return bool(self._server_info.get("cluster"))

    @property
    def transport(self) -> BulkTransport | None:
        """The connection to the current server."""
        return self._transport

    @property
    def parser(self) -> OneCopyParser:
        """The parser of all bytes from the server."""
        return self._ps

    def drop_unsent(self) -> None:
        """Drop the bytes that were not yet written to a socket."""
        self._pending, self._pending_data_size = [], 0

    def abort(self) -> None:
        """Cut the connection and drop the unsent bytes."""
        if self._transport is not None:
            self._transport.abort()

    async def send(self, subject: str, payload: Payload, reply: str, headers: dict[str, str] | None) -> None:
        """`publish` of a payload in any kind of buffer, or in several buffers."""
        whole = BufferedPayload(payload, size_of(payload)) if isinstance(payload, list) else payload
        assert headers is None or not isinstance(payload, list), "a message with headers is in one buffer"
        await self.publish(subject, whole, reply, headers)  # type: ignore[arg-type]  # any buffer works

    async def stop_delivery(self, subscription: Subscription) -> None:
        """Ask the server for no more messages; messages sent before are still handled."""
        await self._send_unsubscribe(subscription._id)

    async def until_handled(self, subscription: Subscription) -> None:
        """Return when the subscription's handler has processed all messages that came."""
        await subscription._pending_queue.join()

    async def _attempt_reconnect(self) -> None:
        self.drop_unsent()
        self.abort()
        await super()._attempt_reconnect()

    async def _connect_to_server(self, server: Any) -> None:
        self.abort()  # a failed attempt leaves its socket open
        if not self._transport:
            self._transport = BulkTransport()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(server)

    async def _send_publish(self, subject: str, reply: str, payload: Any, payload_size: int, headers: Any) -> None:
        parts: list[Any] = payload.parts() if isinstance(payload, BufferedPayload) else [payload]
        if headers is not None or payload_size < BULK_BYTES_MIN:
            await super()._send_publish(subject, reply, parts[0], payload_size, headers)
            return
        head = f"{PUB_OP} {subject} {reply} {payload_size}\r\n".encode()
        # Appended together, because no other command may come between these parts.
        self._pending += [head, *parts]
        self._pending_data_size += len(head) + payload_size
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._send_command(CRLF)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()
