"""Clients that send hostile frames in hostile ways: pipelined, half-open, unfinished, slowly, or without reading."""

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Sequence

from penstock.kafkawire.api import API_TABLE, decode_response, is_flexible
from penstock.kafkawire.api.api_versions import API as API_VERSIONS
from penstock.kafkawire.errors import DecodeError
from tests.testkit.fuzz.frames import Frame, Frames

CONNECT_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 2.0
QUIET_S = 0.3
LINGER_S = 0.3
MANNERS = ["one by one"] * 3 + ["pipelined"] * 4 + ["half-open", "unfinished", "slow", "never reads", "reset"]
PIPELINED_MAX = 60
UNFINISHED_BYTES = [100, 70_000, 1_000_000, 90_000_000]


class HostileClient:
    """One client of many. The random source decides all that it sends; answers decide nothing."""

    def __init__(self, host: str, port: int, chance: random.Random) -> None:
        self._address = host, port
        self._chance = chance
        self._frames = Frames(chance)
        self.sent: Counter[str] = Counter()  # frames and connections
        self.wrong: list[str] = []  # answers that no client could decode

    async def run(self, ends_s: float) -> None:
        """Open one connection after another until the loop's time is `ends_s`."""
        loop = asyncio.get_running_loop()
        while loop.time() < ends_s:
            manner = self._chance.choice(MANNERS)
            count = self._chance.randrange(1, PIPELINED_MAX) if manner != "one by one" else self._chance.randrange(1, 8)
            frames = [self._frames.next() for _ in range(count)]
            self.sent["connections"] += 1
            self.sent["frames"] += count
            self.sent[manner] += 1
            try:
                await self._send(manner, frames)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                self.sent["closed or silent"] += 1

    async def _send(self, manner: str, frames: Sequence[Frame]) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*self._address)
        try:
            await self._use(manner, frames, reader, writer)
        finally:
            if manner == "reset":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _use(
        self, manner: str, frames: Sequence[Frame], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if manner == "one by one":
            for frame in frames:
                writer.write(frame.data)
                await self._read_answer(frame, reader)
            return
        if manner == "slow":
            await self._send_slowly(b"".join(frame.data for frame in frames), writer)
            return
        if manner == "unfinished":
            size_bytes = self._chance.choice(UNFINISHED_BYTES)
            writer.write(struct.pack(">i", size_bytes) + frames[0].data[4:14] + bytes(min(size_bytes // 2, 200_000)))
            await asyncio.sleep(LINGER_S)
            return
        writer.writelines(frame.data for frame in frames)
        if manner == "half-open":
            writer.write_eof()
        if manner in ("pipelined", "half-open"):
            await self._read_all(reader)
        elif manner == "never reads":
            await asyncio.sleep(LINGER_S)

    async def _read_answer(self, frame: Frame, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(length)
        if not frame.is_valid:
            return
        has_tags = is_flexible(API_TABLE[frame.api_key], frame.version) and frame.api_key != API_VERSIONS.key
        try:
            decode_response(frame.api_key, frame.version, answer[5 if has_tags else 4 :])
        except DecodeError as error:
            self.wrong.append(f"{API_TABLE[frame.api_key].name} {frame.version}: {error}")

    async def _read_all(self, reader: asyncio.StreamReader) -> None:
        """Read until the gateway closes, or sends nothing for a while: some of the requests may wait for long."""
        is_open = True
        while is_open:
            async with asyncio.timeout(QUIET_S):
                is_open = bool(await reader.read(1 << 18))

    async def _send_slowly(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        step = max(len(data) // 50, 1)
        for start in range(0, min(len(data), 50 * step), step):
            writer.write(data[start : start + step])
            await writer.drain()
            await asyncio.sleep(0.01)
