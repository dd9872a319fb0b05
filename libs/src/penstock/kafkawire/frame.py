"""Frames of requests and responses: lengths, headers, and the reader that cuts a stream into frames."""

import struct

import msgspec

from penstock.kafkawire.api import API_TABLE, is_flexible, serves
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import TAGGED_FIELDS_MAX, Buffer, skip_tags

LENGTH_BYTES = 4

# The size of a connection's buffer at its start and between requests.
RECEIVE_BYTES = 32 * 1024
# If a frame outgrows its buffer, the next buffer has at most this many times the received bytes. So a client gets no
# memory by only announcing a large frame. A frame of 1 MiB copies 32 KiB, and one of 100 MiB a third of itself.
GROWTH_FACTOR = 32
# With less free space than this, an incomplete frame gets a larger buffer before the next read from the kernel.
FREE_BYTES_MIN = 4096

_REQUEST_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_RESPONSE_HEADER = struct.Struct(">ii")
_API_VERSIONS = 18


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request, before its body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame (without its length), and the position of the body; `DecodeError` if it is invalid.

    For an API or version that is not served, the client id is read if possible. The position is then after it.
    """
    view = memoryview(frame)
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(view)
    except struct.error as error:
        raise DecodeError(f"request header: {len(view)} bytes") from error
    known = serves(api_key, version)
    client_id, position = None, _REQUEST_HEADER.size
    try:
        client_id, position = _client_id(view, position, length)
    except DecodeError:
        if known:
            raise
    if known and is_flexible(API_TABLE[api_key], version):
        position = _skip_header_tags(view, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _client_id(view: memoryview, position: int, length: int) -> tuple[str | None, int]:
    # Never compact, even in a flexible version, so that a broker can read it from any request (KIP-482).
    if length < 0:
        return None, position
    end = position + length
    if end > len(view):
        raise DecodeError(f"client id of {length} bytes in {len(view) - position}")
    try:
        return str(view[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"client id: {error}") from error


def _skip_header_tags(view: memoryview, position: int) -> int:
    try:
        count = view[position]
        position += 1
        if count:
            position, _ = skip_tags(view, position, count, TAGGED_FIELDS_MAX)
    except IndexError as error:
        raise DecodeError("request header: tagged fields end early") from error
    if position > len(view):
        raise DecodeError(f"request header: ends at byte {position} of {len(view)}")
    return position


def response_frame(api_key: int, api_version: int, correlation_id: int, body: list[Buffer]) -> list[Buffer]:
    """A complete response: length, header, and the unchanged buffers of the body.

    A response to ApiVersions always has header version 0, because the client does not know our versions yet (KIP-511).
    """
    api = API_TABLE.get(api_key)
    tags = b"\0" if api is not None and is_flexible(api, api_version) and api_key != _API_VERSIONS else b""
    size_bytes = LENGTH_BYTES + len(tags) + sum(map(len, body))
    return [_RESPONSE_HEADER.pack(size_bytes, correlation_id) + tags, *body]


class FrameReader:
    """Cuts a stream of bytes into frames.

    Bytes enter through `feed`, or without a copy through `get_buffer` and `buffer_updated` (asyncio's
    BufferedProtocol); `next` returns complete frames. A frame is a view without its length. It stays valid and
    unchanged as long as a caller holds it: each region of a buffer is filled once, and a full buffer is replaced.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = memoryview(b"")
        self._start = 0  # of the next frame, with its length
        self._end = 0  # of the received bytes

    def set_limit(self, frame_bytes_max: int) -> None:
        """Change the size of the largest frame; also for a frame that is incomplete."""
        self._frame_bytes_max = frame_bytes_max

    def feed(self, data: Buffer) -> None:
        """Copy bytes that the caller received elsewhere."""
        if len(self._buffer) - self._end < len(data):
            self._replace(max(len(data), self._pending()))
        self._buffer[self._end : self._end + len(data)] = data
        self._end += len(data)

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """The space for the next bytes, never empty; the hint is not used."""
        free_bytes = len(self._buffer) - self._end
        if free_bytes < FREE_BYTES_MIN and free_bytes < self._missing():
            self._replace(min(self._missing(), self._pending() * (GROWTH_FACTOR - 1)))
        return self._buffer[self._end :]

    def buffer_updated(self, size_bytes: int) -> None:
        """Record that `size_bytes` were written into the last result of `get_buffer`."""
        self._end += size_bytes

    def next(self) -> memoryview | None:
        """The next complete frame, or None if more bytes are needed.

        Raises `DecodeError` in this and every later call for a length that is negative or above `frame_bytes_max`.
        """
        start, end = self._start, self._end
        if end - start < LENGTH_BYTES:
            self._drop_if_empty()
            return None
        stop = start + LENGTH_BYTES + self._announced()
        if end < stop:
            return None
        self._start = stop
        return self._buffer[start + LENGTH_BYTES : stop]

    @property
    def announced_bytes(self) -> int:
        """The size of the next frame with its length; 0 if the length is not complete yet, or impossible."""
        if self._pending() < LENGTH_BYTES:
            return 0
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        return LENGTH_BYTES + length if 0 <= length <= self._frame_bytes_max else 0

    def head(self, size_bytes: int) -> bytes:
        """The first bytes of the next frame after its length, as far as they were received."""
        start = self._start + LENGTH_BYTES
        return bytes(self._buffer[start : min(start + size_bytes, self._end)])

    def _announced(self) -> int:
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        if not 0 <= length <= self._frame_bytes_max:
            raise DecodeError(f"frame of {length} bytes, allowed are 0 to {self._frame_bytes_max}")
        return length

    def _pending(self) -> int:
        return self._end - self._start

    def _missing(self) -> int:
        """The number of missing bytes of the next frame; a guess if its length is unknown or nothing is missing."""
        pending = self._pending()
        if pending < LENGTH_BYTES:
            return FREE_BYTES_MIN
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        missing = LENGTH_BYTES + min(length, self._frame_bytes_max) - pending
        return missing if missing > 0 else FREE_BYTES_MIN

    def _replace(self, free_bytes: int) -> None:
        """Move the received bytes of the next frame into a new buffer, with space for `free_bytes` more."""
        pending = self._pending()
        buffer = memoryview(bytearray(max(RECEIVE_BYTES, pending + free_bytes)))
        buffer[:pending] = self._buffer[self._start : self._end]
        self._buffer, self._start, self._end = buffer, 0, pending

    def _drop_if_empty(self) -> None:
        if self._start == self._end and len(self._buffer) > RECEIVE_BYTES:
            self._buffer, self._start, self._end = memoryview(b""), 0, 0
