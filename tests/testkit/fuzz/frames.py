"""Frames of random requests: valid ones, and damaged ones."""

import random
import struct
from collections.abc import Callable, Mapping

import msgspec

from penstock.kafkawire.api import API_TABLE, encode_request, is_flexible
from penstock.kafkawire.api_description import Api
from tests.testkit.fuzz.values import Requests

CLIENT_IDS = ["fuzz", "fuzz,zone=a", "", "x" * 2_000, "\N{SNOWMAN}"]
MANY_ELEMENTS_SHARE = 0.02
DAMAGED_SHARE = 0.6
HOSTILE_LENGTHS = [0, 1, 0x7F, 0x80, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 250_000, 1_000_001]
VARINTS = [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x01", b"\xa0\xa1\x0f"]


class Frame(msgspec.Struct, frozen=True):
    """A request with its length; `is_valid` if the gateway must answer it with a decodable response, or close."""

    api_key: int
    version: int
    data: bytes
    is_valid: bool


class Frames:
    """An endless sequence of frames of all APIs and versions, the same for the same random source."""

    def __init__(self, chance: random.Random, apis: Mapping[int, Api] = API_TABLE) -> None:
        self._chance = chance
        self._requests = Requests(chance)
        self._served = [
            (api, version) for api in apis.values() for version in range(api.min_version, api.max_version + 1)
        ]

    def next(self) -> Frame:
        """The next frame: one in fifty has very many elements, and more than half are damaged."""
        chance = self._chance
        api, version = chance.choice(self._served)
        make = self._requests.with_many_elements if chance.random() < MANY_ELEMENTS_SHARE else self._requests.any
        body = encode_request(api.key, version, make(api, version))
        head = request_head(api.key, version, chance.randrange(-(2**31), 2**31), chance.choice(CLIENT_IDS))
        if chance.random() >= DAMAGED_SHARE:
            return Frame(api.key, version, with_length(head + body), is_valid=True)
        damage = chance.choice(DAMAGES)
        return Frame(api.key, version, damage(chance, head + body), is_valid=False)


def request_head(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """The header of a request, of header version 1 or 2."""
    name = client_id.encode()
    tags = b"\0" if is_flexible(API_TABLE[api_key], version) else b""
    return struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + tags


def with_length(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _flip(chance: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return with_length(bytes(data))


def _cut(chance: random.Random, frame: bytes) -> bytes:
    return with_length(frame[: chance.randrange(len(frame))])


def _extend(chance: random.Random, frame: bytes) -> bytes:
    return with_length(frame + chance.randbytes(chance.choice([1, 4, 100, 10_000])))


def _place(chance: random.Random, frame: bytes, size: int) -> int:
    return chance.randrange(max(len(frame) - size, 1))


def _wrong_count(chance: random.Random, frame: bytes) -> bytes:
    at = _place(chance, frame, 4)
    return with_length(frame[:at] + struct.pack(">I", chance.choice(HOSTILE_LENGTHS)) + frame[at + 4 :])


def _wrong_short(chance: random.Random, frame: bytes) -> bytes:
    at = _place(chance, frame, 2)
    return with_length(frame[:at] + struct.pack(">H", chance.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF])) + frame[at + 2 :])


def _wrong_varint(chance: random.Random, frame: bytes) -> bytes:
    at = _place(chance, frame, 1)
    return with_length(frame[:at] + chance.choice(VARINTS) + frame[at + 1 :])


def _repeat(chance: random.Random, frame: bytes) -> bytes:
    start = _place(chance, frame, 1)
    part = frame[start : start + chance.choice([1, 4, 30, 200])]
    return with_length(frame[:start] + part * chance.choice([2, 3, 50, 1_000]) + frame[start:])


def _tags(chance: random.Random, frame: bytes) -> bytes:
    """Unknown tagged fields at the end, of which there may be too many, or too long ones."""
    count = chance.choice([1, 3, 100, 9_999, 10_001])
    fields = b"".join(struct.pack("BB", chance.randrange(1, 128), 1) + b"x" for _ in range(min(count, 20_000)))
    head = bytes([count & 127 | 128, count >> 7 & 127]) if count > 127 else bytes([count])
    return with_length(frame[:-1] + head + fields)


def _random(chance: random.Random, frame: bytes) -> bytes:
    return with_length(frame[:8] + chance.randbytes(len(frame)))


def _wrong_length(chance: random.Random, frame: bytes) -> bytes:
    """The length of the frame itself is wrong, so that all that follows is out of place."""
    return struct.pack(">I", chance.choice([*HOSTILE_LENGTHS, len(frame) - 1, len(frame) + 1])) + frame


def _other_version(chance: random.Random, frame: bytes) -> bytes:
    version = chance.choice([-1, 0, 1, 2, 5, 9, 12, 13, 18, 99, 32_767])
    return with_length(frame[:2] + struct.pack(">h", version) + frame[4:])


def _other_api(chance: random.Random, frame: bytes) -> bytes:
    return with_length(struct.pack(">h", chance.choice([*API_TABLE, -1, 999, 32_767])) + frame[2:])


def _noise(chance: random.Random, frame: bytes) -> bytes:
    return chance.choice([chance.randbytes(len(frame)), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])


Damage = Callable[[random.Random, bytes], bytes]
DAMAGES: list[Damage] = [
    *[_flip, _flip, _cut, _extend, _wrong_count, _wrong_count, _wrong_short, _wrong_varint, _repeat, _tags],
    *[_random, _wrong_length, _other_version, _other_api, _noise],
]
