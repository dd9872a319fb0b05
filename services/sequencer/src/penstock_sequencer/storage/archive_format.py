"""Codec of archive objects, which hold fragments of the journal in the object store (docs/formats/archive.md).

    header | zstd of the entries, each with its length before it | CRC-32C of all preceding bytes

An object holds the entries from `first` on without a gap and with their bytes unchanged. It also holds the journal's
running hash before the first entry. So every object can be checked by itself, and against an object or a snapshot
before it. Two objects may overlap; they then hold the same entries.
"""

import functools
import struct
from collections.abc import Sequence

import crc32c
import msgspec
import zstandard

from penstock.contracts.entries import HASH_BYTES, next_hash
from penstock.contracts.errors import Corrupt
from penstock_sequencer.storage.snapshot_format import UnknownVersion

FORMAT_VERSION = 1
MAGIC = b"PSTKJRNL"
COMPRESSION_LEVEL = 1  # on typical commits, a higher level costs more time than the saved bytes are worth
# Entries of one object, before compression: they are compressed in one step, in about 20 ms.
ENTRIES_BYTES_MAX = 4 * 1024 * 1024
# A single entry of any size is accepted; a length beyond this is damage.
_UNPACKED_BYTES_MAX = 64 * 1024 * 1024

_HEADER = struct.Struct(f">8sHQQ{HASH_BYTES}sQ")  # magic, version, first, last, hash before first, unpacked length
_LENGTH = struct.Struct(">I")
_CRC = struct.Struct(">I")


class Archive(msgspec.Struct, frozen=True):
    """A fragment of the journal."""

    first: int  # sequence of the first entry
    hash_before: bytes  # the running hash over all entries before it
    entries: list[bytes]

    @property
    def last(self) -> int:
        """Sequence of the last entry."""
        return self.first + len(self.entries) - 1


def encode_archive(archive: Archive) -> bytes:
    """The object's bytes; the fragment has at least one entry."""
    assert archive.entries, "an archive object has entries"
    unpacked = b"".join(part for entry in archive.entries for part in (_LENGTH.pack(len(entry)), entry))
    header = _HEADER.pack(MAGIC, FORMAT_VERSION, archive.first, archive.last, archive.hash_before, len(unpacked))
    framed = header + zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(unpacked)
    return framed + _CRC.pack(crc32c.crc32c(framed))


def decode_archive(data: bytes) -> Archive:
    """The fragment in an object; `Corrupt` if it is damaged, `UnknownVersion` if its version is too new."""
    if len(data) < _HEADER.size + _CRC.size:
        raise Corrupt(f"archive object of {len(data)} bytes is shorter than its header")
    framed = memoryview(data)[: -_CRC.size]
    magic, version, first, last, hash_before, unpacked_length = _HEADER.unpack_from(framed)
    if magic != MAGIC:
        raise Corrupt("not an archive object: its magic is missing")
    crc = _CRC.unpack_from(data, len(framed))[0]
    if crc32c.crc32c(framed) != crc:
        raise Corrupt(f"archive object with crc {crc32c.crc32c(framed):08x}, expected {crc:08x}")
    if version != FORMAT_VERSION:
        raise UnknownVersion(f"archive object of version {version}, this release knows {FORMAT_VERSION}")
    entries = _split(_unpack(framed[_HEADER.size :], unpacked_length))
    if not entries or last != first + len(entries) - 1:
        raise Corrupt(f"archive object of {len(entries)} entries, expected entries {first} to {last}")
    return Archive(first, hash_before, entries)


def hash_after(archive: Archive, sequence: int) -> bytes:
    """The running hash after the entry `sequence`, which is in the archive or just before it."""
    assert archive.first - 1 <= sequence <= archive.last, f"entry {sequence} is not in the archive from {archive.first}"
    taken: Sequence[bytes] = archive.entries[: sequence - archive.first + 1]
    return functools.reduce(next_hash, taken, archive.hash_before)


def _unpack(packed: memoryview, length: int) -> bytes:
    if length > _UNPACKED_BYTES_MAX:
        raise Corrupt(f"archive object of {length} bytes of entries, at most {_UNPACKED_BYTES_MAX} are allowed")
    try:
        # The length in the zstd frame cannot be trusted; the checked length decides how much memory is used.
        unpacked = zstandard.ZstdDecompressor().stream_reader(packed).read(length + 1)
    except zstandard.ZstdError as error:
        raise Corrupt(f"archive object that cannot be unpacked: {error}") from error
    if len(unpacked) != length:
        raise Corrupt(f"archive object with {len(unpacked)} bytes of entries, expected {length}")
    return unpacked


def _split(unpacked: bytes) -> list[bytes]:
    entries = []
    position = 0
    while position < len(unpacked):
        if position + _LENGTH.size > len(unpacked):
            raise Corrupt("archive object that ends in the length of an entry")
        end = position + _LENGTH.size + _LENGTH.unpack_from(unpacked, position)[0]
        if end > len(unpacked):
            raise Corrupt("archive object that ends within an entry")
        entries.append(unpacked[position + _LENGTH.size : end])
        position = end
    return entries
