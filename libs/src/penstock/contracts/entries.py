"""Encoding of journal entries, and the hash chain over them (docs/design.md, section 5).

    u8 version | u32 CRC-32C of the msgpack bytes, big endian | msgpack of Entry

The last entry of a journal that was moved to other servers is a move mark (ADR 0058). Its version is 255, and its
msgpack bytes are a `MoveMark`. No replica applies anything after it.

An entry holds commands in order, and the sequence and hash up to which its author had applied the journal.
The running hash chains every entry's bytes: hash(n) = blake2b(bytes of entry n, key = hash(n-1)). It has 16 bytes;
hash(0) is 16 zero bytes.
"""

import hashlib
import struct

import crc32c
import msgspec

from penstock.contracts.commands import Command
from penstock.contracts.errors import Corrupt
from penstock.contracts.levels import NEWEST_LEVEL, unknown_level

ENTRY_VERSION = 1
MOVE_MARK_VERSION = 255  # releases before move marks take it for an entry of a later release, and halt too
HASH_BYTES = 16
GENESIS_HASH = bytes(HASH_BYTES)
_HEAD = struct.Struct(">BI")


class UnknownLevel(Corrupt):
    """The entry is intact, but raises the cluster above the reader's level: the reader cannot apply later entries."""


class JournalMoved(Corrupt):
    """The journal ends here, because it was moved to other NATS servers."""


class MoveMark(msgspec.Struct, frozen=True, array_like=True):
    """The end of a moved journal: the servers of the new one, and the time at which its stream was made."""

    servers: str
    created: str


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One journal entry; `author_sequence` and `author_hash` name the last entry that its author had applied."""

    entry_id: str
    author: str
    author_sequence: int
    author_hash: bytes
    requests: list[list[Command]]  # one list per request: several requests share an entry (group commit)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)
_mark_decoder = msgspec.msgpack.Decoder(MoveMark)


def encode_entry(entry: Entry) -> bytes:
    """The bytes of the entry in the journal."""
    return _framed(ENTRY_VERSION, _encoder.encode(entry))


def encode_move_mark(mark: MoveMark) -> bytes:
    """The bytes of the mark in the journal."""
    return _framed(MOVE_MARK_VERSION, _encoder.encode(mark))


def is_move_mark(data: bytes) -> bool:
    """Whether these bytes of a journal are a move mark."""
    return data[:1] == bytes([MOVE_MARK_VERSION])


def _framed(version: int, packed: bytes) -> bytes:
    return _HEAD.pack(version, crc32c.crc32c(packed)) + packed


def decode_entry(data: bytes, known_level: int = NEWEST_LEVEL) -> Entry:
    """The entry in `data`; `Corrupt` if it is damaged or of a version that this code does not know.

    `UnknownLevel` if the entry raises the cluster above `known_level`, `JournalMoved` if it is a move mark.
    """
    if len(data) < _HEAD.size:
        raise Corrupt(f"journal entry of {len(data)} bytes is shorter than its head")
    version, crc = _HEAD.unpack_from(data)
    if version not in (ENTRY_VERSION, MOVE_MARK_VERSION):
        raise Corrupt(f"journal entry of version {version}, this release knows {ENTRY_VERSION}")
    packed = memoryview(data)[_HEAD.size :]
    if crc32c.crc32c(packed) != crc:
        raise Corrupt(f"journal entry with crc {crc32c.crc32c(packed):08x}, expected {crc:08x}")
    try:
        if version == MOVE_MARK_VERSION:
            mark = _mark_decoder.decode(packed)
            raise JournalMoved(f"the journal was moved to {mark.servers}, where its stream was made at {mark.created}")
        entry = _decoder.decode(packed)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Corrupt(f"journal entry that cannot be read: {error}") from error
    level = unknown_level(entry.requests, known_level)
    if level is not None:
        raise UnknownLevel(f"journal entry that raises the cluster to level {level}, this release knows {known_level}")
    return entry


def is_of_later_release(data: bytes, error: Corrupt) -> bool:
    """Whether an entry that `decode_entry` rejected with this error is undamaged, but of a later release.

    It is of a later version or level, or has a part that is unknown here. The checksum is verified first, so an unknown
    part was written by a later release.
    """
    if isinstance(error, JournalMoved):
        return False
    is_later_version = data[:1] > bytes([ENTRY_VERSION])
    return is_later_version or isinstance(error, UnknownLevel) or isinstance(error.__cause__, msgspec.ValidationError)


def next_hash(previous: bytes, data: bytes) -> bytes:
    """The running hash after the entry with these bytes."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES, key=previous).digest()
