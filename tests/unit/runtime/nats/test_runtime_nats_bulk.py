"""Any cut of a NATS connection's bytes gives the same messages, complete and in order; large ones are copied once."""

import asyncio
import random
from typing import Any

import pytest

from penstock.runtime.nats.bulk_messages import BULK_BYTES_MIN, ChunkReader, OneCopyParser

LIMIT = 1_000
BULK = bytes(2 * BULK_BYTES_MIN)
FRAGMENTS = [1, 2, 3, 40, 1_000, BULK_BYTES_MIN - 1, BULK_BYTES_MIN, BULK_BYTES_MIN + 1, 3 * BULK_BYTES_MIN]


class Client:
    """Records the messages that a parser finds."""

    def __init__(self) -> None:
        self.found: list[object] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.found.append((sid, subject, reply, data, headers))

    async def _process_ping(self) -> None:
        self.found.append("ping")

    async def _process_pong(self) -> None:
        self.found.append("pong")


class Socket:
    """The socket of a reader, which can pause it."""

    def __init__(self) -> None:
        self.is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


def _wire(chance: random.Random) -> tuple[bytes, list[object]]:
    """The bytes of a server, and the messages that a parser must find in them."""
    wire, expected = b"", list[object]()
    for number in range(12):
        kind, data = chance.randrange(6), chance.randbytes(chance.choice([0, 1, *FRAGMENTS]))
        subject, reply = f"subject.{number}".encode(), chance.choice([b"", b"an.inbox"])
        if kind == 0:
            wire += b"PING\r\n"
            expected.append("ping")
        elif kind == 1:
            headers = b"NATS/1.0\r\nname: value\r\n\r\n"
            sizes = b"%d %d" % (len(headers), len(headers) + len(data))
            wire += b"HMSG %s 7 an.inbox %s\r\n%s%s\r\n" % (subject, sizes, headers, data)
            expected.append((7, subject, b"an.inbox", data, headers))
        else:
            place = subject + b" 3" + (b" " + reply if reply else b"")
            wire += b"MSG %s %d\r\n%s\r\n" % (place, len(data), data)
            expected.append((3, subject, reply, data, None))
    return wire, expected


@pytest.mark.parametrize("seed", range(40))
async def test_every_cut_of_the_bytes_gives_the_same_messages(seed: int) -> None:
    chance = random.Random(seed)
    wire, expected = _wire(chance)
    client: Any = Client()
    parser = OneCopyParser(client)
    position = 0
    while position < len(wire):
        size = chance.choice(FRAGMENTS)
        await parser.parse(wire[position : position + size])
        position += size
    assert client.found == expected


@pytest.mark.parametrize("left", range(4))
async def test_a_large_message_may_be_cut_in_its_last_bytes(left: int) -> None:
    client: Any = Client()
    parser = OneCopyParser(client)
    wire = b"MSG a 1 %d\r\n%s\r\nPING\r\n" % (len(BULK), BULK)
    cut = len(wire) - len(b"PING\r\n") - left
    for part in (wire[: cut // 2], wire[cut // 2 : cut], wire[cut:]):
        await parser.parse(part)
    assert client.found == [(1, b"a", b"", BULK, None), "ping"]


async def test_a_new_connection_begins_without_the_fragments_of_the_old_one() -> None:
    client: Any = Client()
    parser = OneCopyParser(client)
    await parser.parse(b"MSG a 1 %d\r\n" % len(BULK) + BULK[:1_000])
    parser.reset()
    await parser.parse(b"PING\r\n")
    assert client.found == ["ping"]


def _reader() -> tuple[ChunkReader, Socket]:
    socket: Any = Socket()
    reader = ChunkReader(LIMIT)
    reader.set_transport(socket)
    return reader, socket


async def test_chunks_are_passed_on_uncopied() -> None:
    reader, _ = _reader()
    reader.feed_data(b"a line\r\nand more")
    assert await reader.readline() == b"a line\r\n"
    assert await reader.read() == b"and more"
    reader.feed_data(BULK)
    reader.feed_data(b"a small one")
    assert await reader.read() is BULK
    assert await reader.read() == b"a small one"


async def test_small_chunks_come_together() -> None:
    reader, _ = _reader()
    reader.feed_data(b"first, ")
    await reader.read()
    for chunk in (b"second, ", b"third"):
        reader.feed_data(chunk)
    assert await reader.read() == b"second, third"


async def test_a_waiting_reader_is_woken_by_bytes_and_by_the_end() -> None:
    reader, _ = _reader()
    for chunk in (b"bytes", b""):
        waiting = asyncio.create_task(reader.read())
        await asyncio.sleep(0)
        assert not waiting.done()
        if chunk:
            reader.feed_data(chunk)
        else:
            reader.feed_eof()
        assert await waiting == chunk


async def test_the_end_comes_after_all_received_bytes() -> None:
    reader, _ = _reader()
    reader.feed_data(b"first")
    await reader.read()
    reader.feed_data(b"last")
    reader.feed_eof()
    assert not reader.at_eof()
    assert await reader.read() == b"last"
    assert reader.at_eof()
    assert await reader.read() == b""


async def test_a_broken_connection_is_reported() -> None:
    reader, _ = _reader()
    reader.set_exception(ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError):
        await reader.read()


async def test_the_socket_is_paused_while_too_much_waits() -> None:
    reader, socket = _reader()
    reader.feed_data(b"first")
    await reader.read()
    was_paused = []
    for _ in range(3):
        reader.feed_data(bytes(LIMIT))
        was_paused.append(socket.is_paused)
    assert was_paused == [False, False, True]
    assert await reader.read() == bytes(3 * LIMIT)
    was_paused.append(socket.is_paused)
    assert not was_paused[-1]
