"""Replacements for parts of nats-py's client, for messages of megabytes: fewer copies, fewer and larger reads.

nats-py is made for small messages. It reads 32 KiB at a time and stops reading at 64 KiB. It copies each message four
times on the way in and twice on the way out. These parts copy it once each way. `PatchedClient` installs them.
"""

import asyncio
import ssl
from collections import deque
from typing import Any

from nats.aio.transport import TcpTransport
from nats.protocol.parser import AWAITING_CONTROL_LINE, AWAITING_MSG_PAYLOAD, Parser

from penstock.contracts.codec import Buffer

READ_BYTES = 512 * 1024
BULK_BYTES_MIN = 64 * 1024  # below this size, a copy costs less than the handling of fragments
BUFFER_BYTES_MIN = 8 * 1024  # smaller buffers of a payload are joined, on average: the kernel takes each on its own
CRLF = b"\r\n"


class BufferedPayload:
    """A payload in several buffers, which pass the client as one."""

    def __init__(self, buffers: list[Buffer], size_bytes: int) -> None:
        self.buffers = buffers
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def parts(self) -> list[Buffer]:
        """The buffers to write, as they are or joined, whichever costs less."""
        if self._size_bytes >= max(BULK_BYTES_MIN, BUFFER_BYTES_MIN * len(self.buffers)):
            return self.buffers
        return [b"".join(self.buffers)]


class ChunkReader(asyncio.StreamReader):
    """Returns the socket's chunks uncopied, from the first `read` on; lines can be read before that."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, asyncio.get_running_loop())
        self._chunks: deque[bytes] = deque()
        self._chunk_bytes = 0
        self._is_by_chunks = False

    def feed_data(self, data: Any) -> None:
        if not self._is_by_chunks:
            super().feed_data(data)
            return
        self._chunks.append(data)
        self._chunk_bytes += len(data)
        self._wakeup_waiter()  # type: ignore[attr-defined]
        if not self._paused and self._chunk_bytes > 2 * self._limit:  # type: ignore[has-type, attr-defined]
            self._transport.pause_reading()  # type: ignore[attr-defined]
            self._paused = True

    def at_eof(self) -> bool:
        return super().at_eof() and not self._chunks

    async def read(self, n: int = -1) -> bytes:
        """The next chunk, of any size; empty at the end of the stream."""
        if self._exception is not None:  # type: ignore[attr-defined]
            raise self._exception  # type: ignore[attr-defined]
        if not self._is_by_chunks:
            self._is_by_chunks = True
            if self._buffer:  # type: ignore[attr-defined]
                self._chunks.append(bytes(self._buffer))  # type: ignore[attr-defined]
                self._chunk_bytes += len(self._buffer)  # type: ignore[attr-defined]
                self._buffer.clear()  # type: ignore[attr-defined]
        if not self._chunks and not self._eof:  # type: ignore[attr-defined]
            await self._wait_for_data("read")  # type: ignore[attr-defined]
        data = self._take()
        if self._paused and self._chunk_bytes <= self._limit:  # type: ignore[attr-defined]
            self._paused = False
            self._transport.resume_reading()  # type: ignore[attr-defined]
        return data

    def _take(self) -> bytes:
        if not self._chunks:
            return b""
        if len(self._chunks) > 1 and self._chunk_bytes < BULK_BYTES_MIN:
            data = b"".join(self._chunks)
            self._chunks.clear()
        else:
            data = self._chunks.popleft()
        self._chunk_bytes -= len(data)
        return data


class _TlsProtocol(asyncio.StreamReaderProtocol):
    """Ends with the connection: TLS has no connection that is closed in one direction."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class BulkTransport(TcpTransport):
    """A TCP connection, perhaps with TLS, that is read in large chunks."""

    _is_new = True

    def __bool__(self) -> bool:
        # nats-py replaces a transport that is not connected with one of its own.
        return self._is_new or bool(super().__bool__())  # type: ignore[no-untyped-call]

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        self._is_new = False
        loop = asyncio.get_running_loop()
        reader = ChunkReader(READ_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        async with asyncio.timeout(connect_timeout):
            transport, _ = await loop.create_connection(lambda: protocol, uri.hostname, uri.port)
        # As in the base class: the bare reader and writer keep the socket alive when TLS replaces the other two.
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = asyncio.StreamWriter(transport, protocol, reader, loop)

    async def connect_tls(self, uri: Any, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int) -> None:
        assert self._io_writer is not None, "`connect` comes first"
        loop = asyncio.get_running_loop()
        reader = ChunkReader(READ_BYTES)
        protocol = _TlsProtocol(reader, loop=loop)
        name = uri if isinstance(uri, str) else uri.hostname
        async with asyncio.timeout(connect_timeout):
            transport = await loop.start_tls(self._io_writer.transport, protocol, ssl_context, server_hostname=name)
        assert transport is not None, "the connection ended in the handshake"
        reader.set_transport(transport)
        self._io_reader, self._io_writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def read(self, buffer_size: int) -> Any:
        return await super().read(READ_BYTES)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait in this process for the socket."""
        return int(self._io_writer.transport.get_write_buffer_size()) if self._io_writer is not None else 0

    def abort(self) -> None:
        """Cut the connection and drop the unsent bytes."""
        if self._io_writer is not None:
            self._io_writer.transport.abort()


class _OneCopyBuffer(bytearray):
    """A bytearray whose slices are `bytes`; nats-py would copy an ordinary slice to `bytes` once more."""

    def __getitem__(self, key: Any) -> Any:
        return bytes(memoryview(self)[key]) if isinstance(key, slice) else super().__getitem__(key)


class OneCopyParser(Parser):
    """Copies each payload once: fragments of a large payload are kept as they arrive, and joined at the end."""

    def reset(self) -> None:
        super().reset()
        self.buf = _OneCopyBuffer()
        self._fragments: list[bytes] = []
        self._fragments_bytes = 0

    async def parse(self, data: bytes = b"") -> None:
        while self._fragments and data:
            data = await self._take_fragment(data)
        if data:
            await super().parse(data)
            self._begin_fragments()

    def _begin_fragments(self) -> None:
        """Collect the rest of a large message whose first bytes are in the buffer."""
        is_bulk = self.state == AWAITING_MSG_PAYLOAD and self.needed >= BULK_BYTES_MIN and not self.header_needed
        if is_bulk and self.buf:
            self._fragments, self._fragments_bytes = [bytes(self.buf)], len(self.buf)
            self.buf.clear()

    async def _take_fragment(self, data: bytes) -> bytes:
        """Take the bytes that belong to the message, and return the bytes after it."""
        missing = self.needed + len(CRLF) - self._fragments_bytes
        if len(data) < missing:
            self._fragments.append(data)
            self._fragments_bytes += len(data)
            return b""
        payload_missing = missing - len(CRLF)
        if payload_missing > 0:
            payload = b"".join((*self._fragments, memoryview(data)[:payload_missing]))
        else:  # the payload is already complete, perhaps with half of the line end
            payload = b"".join(self._fragments)[: self.needed]
        self._fragments, self._fragments_bytes = [], 0
        self.state = AWAITING_CONTROL_LINE
        message = self.msg_arg
        await self.nc._process_msg(message["sid"], message["subject"], message["reply"], payload, None)
        return data[missing:]
