"""Frames and their headers: where a request ends, who sent it, and how an answer begins."""

import struct

import msgspec

from penstock.kafkawire.api import API_TABLE, is_flexible, serves
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.primitives import Buffer, skip_tags

LENGTH_BYTES = 4

# A connection starts with, and between requests keeps, no more than this.
RECEIVE_BYTES = 32 * 1024
# When a frame outgrows its buffer, the next is at most this many times what has really arrived: a client that only
# announces a large frame gets no memory for it, a frame of 1 MiB moves 32 KiB, and one of 100 MiB a third of itself.
GROWTH_FACTOR = 32
# Less room than this is not worth a call to the kernel when a larger buffer is due anyway.
ROOM_BYTES_MIN = 4096

_REQUEST_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_RESPONSE_HEADER = struct.Struct(">ii")
_API_VERSIONS = 18


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """What comes before the body of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame (without its length), and where the body begins; `DecodeError` if it is not one.

    Of an API or version that is not served, the client id is read if it can be, and the position is behind it.
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
        position = _behind_tags(view, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _client_id(view: memoryview, position: int, length: int) -> tuple[str | None, int]:
    # Never compact, even where the version is flexible, so that a broker can read it of any request (KIP-482).
    if length < 0:
        return None, position
    end = position + length
    if end > len(view):
        raise DecodeError(f"client id of {length} bytes in {len(view) - position}")
    try:
        return str(view[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"client id: {error}") from error


def _behind_tags(view: memoryview, position: int) -> int:
    try:
        count = view[position]
        position += 1
        if count:
            position = skip_tags(view, position, count)
    except IndexError as error:
        raise DecodeError("request header: tagged fields end early") from error
    if position > len(view):
        raise DecodeError(f"request header: ends at byte {position} of {len(view)}")
    return position


def response_frame(api_key: int, api_version: int, correlation_id: int, body: list[Buffer]) -> list[Buffer]:
    """A whole answer: length, header, and the buffers of the body as they are.

    ApiVersions is always answered with header version 0, because the client cannot know yet what we speak (KIP-511).
    """
    api = API_TABLE.get(api_key)
    tags = b"\0" if api is not None and is_flexible(api, api_version) and api_key != _API_VERSIONS else b""
    size_bytes = LENGTH_BYTES + len(tags) + sum(map(len, body))
    return [_RESPONSE_HEADER.pack(size_bytes, correlation_id) + tags, *body]


class FrameReader:
    """Cuts a stream of bytes into frames.

    Bytes come in through `feed`, or without a copy through `get_buffer` and `buffer_updated` (asyncio's
    BufferedProtocol); complete frames go out through `next`. A frame is a view without its length. It stays valid and
    unchanged for as long as anyone holds it: a region of a buffer is filled once, and a full buffer is replaced.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = memoryview(b"")
        self._start = 0  # of the frame to come, its length included
        self._end = 0  # of the bytes received

    def feed(self, data: Buffer) -> None:
        """Take bytes that were received elsewhere; copies them."""
        if len(self._buffer) - self._end < len(data):
            self._replace(max(len(data), self._pending()))
        self._buffer[self._end : self._end + len(data)] = data
        self._end += len(data)

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where to put the next bytes; never empty. The hint is not needed."""
        room = len(self._buffer) - self._end
        if room < ROOM_BYTES_MIN and room < self._missing():
            self._replace(min(self._missing(), self._pending() * (GROWTH_FACTOR - 1)))
        return self._buffer[self._end :]

    def buffer_updated(self, size_bytes: int) -> None:
        """So many bytes were put into the buffer that `get_buffer` gave last."""
        self._end += size_bytes

    def next(self) -> memoryview | None:
        """The next complete frame, or None until more bytes have come.

        Raises `DecodeError`, now and ever after, for a length that is negative or above `frame_bytes_max`.
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

    def _announced(self) -> int:
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        if not 0 <= length <= self._frame_bytes_max:
            raise DecodeError(f"frame of {length} bytes, allowed are 0 to {self._frame_bytes_max}")
        return length

    def _pending(self) -> int:
        return self._end - self._start

    def _missing(self) -> int:
        """How many bytes the frame to come still lacks; a guess while its length is not there, or if it is complete."""
        pending = self._pending()
        if pending < LENGTH_BYTES:
            return ROOM_BYTES_MIN
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        missing = LENGTH_BYTES + min(length, self._frame_bytes_max) - pending
        return missing if missing > 0 else ROOM_BYTES_MIN

    def _replace(self, room_bytes: int) -> None:
        """Move the bytes of the frame to come into a fresh buffer that has room for so many more."""
        pending = self._pending()
        fresh = memoryview(bytearray(max(RECEIVE_BYTES, pending + room_bytes)))
        fresh[:pending] = self._buffer[self._start : self._end]
        self._buffer, self._start, self._end = fresh, 0, pending

    def _drop_if_empty(self) -> None:
        if self._start == self._end and len(self._buffer) > RECEIVE_BYTES:
            self._buffer, self._start, self._end = memoryview(b""), 0, 0
