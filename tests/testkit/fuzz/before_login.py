"""Random frames before a login: `python -m tests.testkit.fuzz.before_login --frames 100000 --seed n`.

It starts a cluster and a gateway whose listener demands a login. Clients send frames that are random, or almost right,
and leave at any moment. At the end the process lives, and has no more memory than after the first frames.
"""

import argparse
import asyncio
import base64
import contextlib
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from penstock.kafkawire.api import API_TABLE, encode_request
from penstock.kafkawire.api.sasl_authenticate import SaslAuthenticateRequest
from penstock.kafkawire.api.sasl_handshake import SaslHandshakeRequest
from tests.testkit.clusters.cluster import running, wait_until
from tests.testkit.clusters.secured_gateway import SecuredGateway, secured_gateway
from tests.testkit.fuzz.memory import BLOCKS
from tests.testkit.fuzz.values import Requests
from tests.testkit.servers.token_issuer import AUDIENCE, ISSUER, Issuer, serving

LISTENER = "SASL_PLAINTEXT"
CONNECTIONS = 100
FRAMES_PER_CONNECTION_MAX = 12
GREETING_S = 60.0
ANSWER_S = 0.2  # most clients do not wait for a delayed answer
SETTLE_S = 60.0
# Until then the heap grows by some 50 MB, because of so many connections at once. Then it stays.
WARM_UP_FRAMES = 20_000
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]
HANDSHAKE, AUTHENTICATE, VERSIONS = 17, 36, 18
BYTES_BACK_MAX = 24 * 1024 * 1024


class Report(msgspec.Struct, frozen=True):
    """The result of a run."""

    frames: int
    connections: int
    answers: int
    resident_before: int  # bytes, after the warm-up
    resident_after: int  # bytes, when all connections are closed
    blocks_before: int  # of memory for Python objects, after the warm-up
    blocks_after: int

    @property
    def is_memory_back(self) -> bool:
        """Whether the process has about the memory that it had before."""
        return self.resident_after - self.resident_before < BYTES_BACK_MAX


class Frames:
    """Random frames for the time before a login, without their lengths."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._requests = Requests(chance)

    def next(self) -> bytes:
        """A frame with its length."""
        chance = self._chance
        kinds = [self._noise, self._any_request, *[self._handshake] * 2, *[self._token] * 3]
        frame = chance.choice(kinds)()
        if frame and chance.random() < 0.1:
            damaged = bytearray(frame)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            frame = bytes(damaged)
        length = chance.choice([-1, 2**31 - 1, 70_000, len(frame) + 5]) if chance.random() < 0.03 else len(frame)
        return struct.pack(">i", length) + frame

    def _noise(self) -> bytes:
        return self._chance.randbytes(self._chance.choice([0, 1, 8, 100, 3_000, 60_000]))

    def _any_request(self) -> bytes:
        api = self._chance.choice([*API_TABLE.values(), API_TABLE[VERSIONS]])
        version = self._chance.randint(api.min_version, api.max_version)
        return self._frame(api.key, version, encode_request(api.key, version, self._requests.any(api, version)))

    def _handshake(self) -> bytes:
        version = self._chance.choice([0, 1, 1, 1])
        mechanism = self._chance.choice([*MECHANISMS * 3, "GSSAPI", "", "x" * 30_000])
        return self._frame(HANDSHAKE, version, encode_request(HANDSHAKE, version, SaslHandshakeRequest(mechanism)))

    def _token(self) -> bytes:
        token = self._chance.choice([self._scram, self._scram, self._plain, self._bearer, self._noise])()
        if self._chance.random() < 0.2:
            return token  # as after version 0 of SaslHandshake
        version = self._chance.randint(0, 2)
        return self._frame(AUTHENTICATE, version, encode_request(AUTHENTICATE, version, SaslAuthenticateRequest(token)))

    def _scram(self) -> bytes:
        chance = self._chance
        name = chance.choice(["alice", "mallory", "a=2Cb", "a=b", "", "é" * 100, "x" * 50_000])
        nonce = chance.choice(["abc", "", "a,b", "n" * 3_000])
        first = f"{chance.choice('nyp')},{chance.choice(['', 'a=alice', 'a='])},n={name},r={nonce}"
        proof = base64.b64encode(chance.randbytes(chance.choice([0, 32, 64]))).decode()
        final = f"c={chance.choice(['biws', '', '====', 'eSws'])},r={nonce},p={proof}"
        return chance.choice([first, first, final]).encode()

    def _plain(self) -> bytes:
        parts = [self._chance.choice([b"", b"alice", b"root", b"\xff", b"p" * 1_000]) for _ in range(3)]
        return b"\0".join(parts)

    def _bearer(self) -> bytes:
        parts = [base64.urlsafe_b64encode(self._json()).rstrip(b"=") for _ in range(3)]
        return b"n,,\x01auth=Bearer " + b".".join(parts) + b"\x01\x01"

    def _json(self) -> bytes:
        header = b'{"alg":"%s","kid":"one-rsa"}' % self._chance.choice([b"RS256", b"none", b"HS256", b"ES256"])
        return self._chance.choice([header, b'{"sub":"root"}', b"[" * 9_000, self._chance.randbytes(60), b""])

    def _frame(self, api_key: int, version: int, body: bytes) -> bytes:
        tags = b"\0" if version >= API_TABLE[api_key].flexible_since else b""
        return struct.pack(">hhihs", api_key, version, self._chance.randrange(2**31), 1, b"f") + tags + body


class Fuzzer:
    """Clients that send so many frames to an address, each connection after the bytes of a greeting."""

    def __init__(
        self, address: str, chance: random.Random, next_frame: Callable[[], bytes], greeting: Sequence[bytes] = ()
    ) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._chance = chance
        self._next_frame = next_frame
        self._greeting = greeting
        self._left = 0
        self.frames = 0
        self.connections = 0
        self.answers = 0

    async def send(self, frames: int) -> None:
        """Send frames, over many connections at once."""
        self._left = frames
        await asyncio.gather(*(self._keep_sending() for _ in range(CONNECTIONS)))

    async def _keep_sending(self) -> None:
        while self._left > 0:
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                await self._connect_and_send()

    async def _connect_and_send(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        self.connections += 1
        try:
            for data in self._greeting:
                writer.write(data)
                async with asyncio.timeout(GREETING_S):
                    (length,) = struct.unpack(">i", await reader.readexactly(4))
                    await reader.readexactly(length)
            for _ in range(self._chance.randint(1, FRAMES_PER_CONNECTION_MAX)):
                data = self._next_frame()
                self._left -= 1
                self.frames += 1
                writer.write(data[: self._chance.randrange(len(data))] if self._chance.random() < 0.02 else data)
                await writer.drain()
                if self._chance.random() < 0.8:
                    await self._read(reader)
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(60.0 if self._chance.random() < 0.01 else ANSWER_S):
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(length)
            self.answers += 1


async def fuzz(gateway: SecuredGateway, frames: int, seed: int) -> Report:
    """Send random frames to the gateway, and measure its memory before and after; it must live."""
    chance = random.Random(seed)
    return await fuzz_with(gateway, Fuzzer(gateway.addresses[LISTENER], chance, Frames(chance).next), frames)


async def fuzz_with(
    gateway: SecuredGateway, fuzzer: Fuzzer, frames: int, warm_up_frames: int = WARM_UP_FRAMES
) -> Report:
    """The same with these clients."""
    await fuzzer.send(warm_up_frames)
    await asyncio.to_thread(_until_empty, gateway)
    before, blocks = gateway.resident_bytes(), await asyncio.to_thread(gateway.metric, BLOCKS)
    await fuzzer.send(frames)
    await asyncio.to_thread(_until_empty, gateway)
    after, blocks_after = gateway.resident_bytes(), await asyncio.to_thread(gateway.metric, BLOCKS)
    return Report(fuzzer.frames, fuzzer.connections, fuzzer.answers, before, after, int(blocks), int(blocks_after))


def _until_empty(gateway: SecuredGateway) -> None:
    wait_until(
        lambda: gateway.is_ready() and gateway.metric("penstock_gateway_connections") == 0,
        SETTLE_S,
        "all connections to be closed",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    issuer = Issuer()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "data", "--flush-ms", "20") as cluster,
        serving(issuer) as keys,
        secured_gateway(cluster, "fuzzed", LISTENER, **login_settings(keys)) as gateway,
    ):
        report = asyncio.run(fuzz(gateway, given.frames, seed))
    print(report)
    return int(not report.is_memory_back)


def login_settings(keys: str) -> dict[str, str]:
    """The settings of a gateway with all mechanisms, and with the keys of an issuer at this URL."""
    return {
        "sasl_enabled_mechanisms": ",".join(MECHANISMS),
        "sasl_plain_without_tls": "true",
        "sasl_oauthbearer_jwks_endpoint_url": keys,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }


if __name__ == "__main__":
    sys.exit(main())
