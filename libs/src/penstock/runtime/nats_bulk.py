"""The nats client for messages of megabytes: fewer copies and fewer, larger reads than it makes by itself.

It is made for small messages: it reads 32 KiB at a time, holds the server up at 64 KiB, and copies each message twice
on the way in and twice on the way out.
"""

from typing import Any

from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.protocol.command import PUB_OP
from nats.protocol.parser import Parser

READ_BYTES = 512 * 1024
BULK_BYTES_MIN = 64 * 1024  # a smaller message costs less copied than sent in three pieces
_CRLF = b"\r\n"


class BulkTransport(TcpTransport):
    """Reads as much as is there, up to `READ_BYTES`."""

    _is_new = True

    def __bool__(self) -> bool:
        # The client makes one of its own in place of a transport that is not connected.
        return self._is_new or bool(super().__bool__())  # type: ignore[no-untyped-call]

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        self._is_new = False
        await super().connect(uri, READ_BYTES, connect_timeout)

    async def read(self, buffer_size: int) -> Any:
        return await super().read(READ_BYTES)


class _OneCopyBuffer(bytearray):
    """A part of it is bytes at once, where that of its base is another bytearray that somebody then makes bytes of."""

    def __getitem__(self, key: Any) -> Any:
        return bytes(memoryview(self)[key]) if isinstance(key, slice) else super().__getitem__(key)


class OneCopyParser(Parser):
    """Copies each payload once."""

    def reset(self) -> None:
        super().reset()
        self.buf = _OneCopyBuffer()


class BulkClient(Client):
    """Sends large payloads as they are; whoever sends one does not change it any more."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = OneCopyParser(self)

    async def _connect_to_server(self, server: Any) -> None:
        if not self._transport:
            self._transport = BulkTransport()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(server)

    async def _send_publish(self, subject: str, reply: str, payload: Any, payload_size: int, headers: Any) -> None:
        if headers is not None or payload_size < BULK_BYTES_MIN:
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        head = f"{PUB_OP} {subject} {reply} {payload_size}\r\n".encode()
        # Nobody may come in between, so they are not three commands.
        self._pending += [head, payload]
        self._pending_data_size += len(head) + payload_size
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._send_command(_CRLF)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()
