"""Codec of snapshot objects: the state and its place in the journal (docs/formats/snapshot.md).

prologue: magic, version, CRC | head: cluster, place, lengths, CRCs | zstd of the last running hashes and the state
"""

import io
import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO

import crc32c
import msgspec
import zstandard

from penstock.contracts.codec import Buffer
from penstock.contracts.entries import HASH_BYTES
from penstock.contracts.errors import Corrupt
from penstock.contracts.levels import NEWEST_LEVEL
from penstock_sequencer.core.snapshot.codec import decode_state, encode_fragments
from penstock_sequencer.core.state.cluster import State

FORMAT_VERSION = 3
OLDEST_VERSION = 1  # the oldest that can still be read
MAGIC = b"PSTKSNAP"
COMPRESSION_LEVEL = 1  # on columns of numbers, higher levels take several times as long for a tenth of the bytes
CONTENT_BYTES_MAX = 8 * 1024 * 1024 * 1024  # four times the largest state; more is damage
FRAGMENT_BYTES = 1024 * 1024  # of a payload, decompressed at once
HASHES_MAX = 1_024  # running hashes kept: authors of the next entries are no further behind, so these can be checked

_PROLOGUE = struct.Struct(">8sH2xI")  # magic, version, CRC of the preceding bytes
_PROLOGUE_CRC_AT = _PROLOGUE.size - 4
# cluster, sequence, clock, running hash, count of hashes, CRC of the payload, content length, payload length
_HEAD = struct.Struct(f">64sQQ{HASH_BYTES}sIIQQ")
_CRC = struct.Struct(">I")
HEAD_BYTES = _PROLOGUE.size + _HEAD.size + _CRC.size


class UnknownVersion(Corrupt):
    """Written by a release that is newer than this one, and undamaged."""


class Head(msgspec.Struct, frozen=True):
    """A snapshot's description of itself, before its payload."""

    cluster: str
    sequence: int  # of the last journal entry that the state reflects
    clock_ms: int
    running_hash: bytes  # of the journal after that entry
    hashes: int
    payload_crc: int
    content_length: int  # bytes, before compression
    payload_length: int


class Snapshot(msgspec.Struct, frozen=True):
    """A state and its place in the journal."""

    cluster: str
    hashes: list[bytes]  # the journal's running hashes after the last entries, the last one after `state.sequence`
    state: State


def write_snapshot(out: IO[bytes], snapshot: Snapshot) -> None:
    """Write the snapshot to an empty file that can be written at any position."""
    state, hashes = snapshot.state, snapshot.hashes[-HASHES_MAX:]
    assert hashes, "a snapshot has its place in the journal"
    # zstd needs the length before the first byte, so the state is encoded twice instead of held as bytes.
    content_length = HASH_BYTES * len(hashes) + sum(map(len, encode_fragments(state)))
    out.write(bytes(HEAD_BYTES))
    crc = length = 0
    for fragment in _compressed(content_length, chain([b"".join(hashes)], encode_fragments(state))):
        out.write(fragment)
        crc = crc32c.crc32c(fragment, crc)
        length += len(fragment)
    out.seek(0)
    place = (state.sequence, state.clock_ms, hashes[-1])
    out.write(encode_head(Head(snapshot.cluster, *place, len(hashes), crc, content_length, length)))


def _compressed(length: int, fragments: Iterable[bytes]) -> Iterator[bytes]:
    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compressobj(size=length)
    yield from map(compressor.compress, fragments)
    yield compressor.flush()


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot's bytes."""
    out = io.BytesIO()
    write_snapshot(out, snapshot)
    return out.getvalue()


def read_head(data: Buffer) -> Head:
    """Decode the first HEAD_BYTES; `UnknownVersion`, or `Corrupt` if they are damaged."""
    if len(data) < HEAD_BYTES:
        raise Corrupt(f"snapshot of {len(data)} bytes is shorter than its head")
    view = memoryview(data)[:HEAD_BYTES]
    magic, version, prologue_crc = _PROLOGUE.unpack_from(view)
    if magic != MAGIC or crc32c.crc32c(view[:_PROLOGUE_CRC_AT]) != prologue_crc:
        raise Corrupt("not a snapshot: its first bytes are damaged")
    if not OLDEST_VERSION <= version <= FORMAT_VERSION:
        raise UnknownVersion(f"snapshot of version {version}, this release knows {FORMAT_VERSION}")
    packed = view[_PROLOGUE.size : -_CRC.size]
    if crc32c.crc32c(packed) != _CRC.unpack_from(view, HEAD_BYTES - _CRC.size)[0]:
        raise Corrupt("snapshot with a damaged head")
    cluster, *numbers = _HEAD.unpack(packed)
    head = Head(cluster.rstrip(b"\0").decode("ascii", "replace"), *numbers)
    if not 0 < head.hashes <= HASHES_MAX or not 0 < head.content_length <= CONTENT_BYTES_MAX:
        raise Corrupt(f"snapshot with {head.hashes} hashes and a content of {head.content_length} bytes")
    return head


def read_snapshot(data: Buffer, *, known_level: int = NEWEST_LEVEL) -> Snapshot:
    """Decode a snapshot object; `Corrupt` if it is damaged.

    `UnknownVersion` if its format is too new for this release, or its cluster is above `known_level`.
    """
    payload = memoryview(data)[HEAD_BYTES:]
    starts = range(0, len(payload), FRAGMENT_BYTES)
    return _read(read_head(data), (payload[start : start + FRAGMENT_BYTES] for start in starts), known_level)


def read_snapshot_file(file: IO[bytes], *, known_level: int = NEWEST_LEVEL) -> Snapshot:
    """Decode the snapshot object in a file, from its beginning, without holding its bytes; `Corrupt` as above."""
    file.seek(0)
    head = read_head(file.read(HEAD_BYTES))
    return _read(head, iter(lambda: file.read(FRAGMENT_BYTES), b""), known_level)


def _read(head: Head, fragments: Iterable[Buffer], known_level: int) -> Snapshot:
    content = memoryview(_unpacked(head, fragments))
    hashes_length = HASH_BYTES * head.hashes
    hashes = [bytes(content[start : start + HASH_BYTES]) for start in range(0, hashes_length, HASH_BYTES)]
    state = decode_state(content[hashes_length:])
    if (state.sequence, state.clock_ms, hashes[-1]) != (head.sequence, head.clock_ms, head.running_hash):
        raise Corrupt(f"snapshot with a state of entry {state.sequence} and a head of entry {head.sequence}")
    if state.level > known_level:
        raise UnknownVersion(f"snapshot of a cluster of level {state.level}, this release knows {known_level}")
    return Snapshot(head.cluster, hashes, state)


class PayloadCheck:
    """Checks a payload, fragment by fragment, against its head."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._crc = 0
        self._length = 0

    def take(self, fragment: Buffer) -> None:
        """Add the next fragment."""
        self._crc = crc32c.crc32c(fragment, self._crc)
        self._length += len(fragment)

    def finish(self) -> None:
        """`Corrupt` unless the fragments were the complete, unchanged payload."""
        head = self._head
        if self._length != head.payload_length:
            raise Corrupt(f"snapshot with {self._length} of {head.payload_length} bytes of payload")
        if self._crc != head.payload_crc:
            raise Corrupt(f"snapshot with crc {self._crc:08x}, expected {head.payload_crc:08x}")


def encode_head(head: Head) -> bytes:
    """The first HEAD_BYTES of a snapshot."""
    prologue = _PROLOGUE.pack(MAGIC, FORMAT_VERSION, 0)[:_PROLOGUE_CRC_AT]
    packed = _HEAD.pack(head.cluster.encode("ascii"), *msgspec.structs.astuple(head)[1:])
    return b"".join((prologue, _CRC.pack(crc32c.crc32c(prologue)), packed, _CRC.pack(crc32c.crc32c(packed))))


def _unpacked(head: Head, fragments: Iterable[Buffer]) -> bytearray:
    """The content of a payload that comes in fragments; `Corrupt` if it is damaged."""
    check = PayloadCheck(head)
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    content = bytearray()
    try:
        for fragment in fragments:
            check.take(fragment)
            if not decompressor.eof:
                content += decompressor.decompress(fragment)
            if len(content) > head.content_length:
                raise Corrupt(f"snapshot with a content of more than {head.content_length} bytes")
    except zstandard.ZstdError as error:
        raise Corrupt(f"snapshot that cannot be decompressed: {error}") from error
    check.finish()
    if len(content) != head.content_length:
        raise Corrupt(f"snapshot with a content of {len(content)} bytes, expected {head.content_length}")
    return content
