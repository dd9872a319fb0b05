"""Archive objects read back byte for byte, and every damage is found."""

import functools
import struct

import crc32c
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.entries import GENESIS_HASH, next_hash
from penstock.contracts.errors import Corrupt
from penstock_sequencer.storage import archive_format
from penstock_sequencer.storage.archive_format import Archive, decode_archive, encode_archive, hash_after

fragments = st.builds(
    Archive,
    first=st.integers(1, 2**62),
    hash_before=st.binary(min_size=16, max_size=16),
    entries=st.lists(st.binary(max_size=300), min_size=1, max_size=20),
)
SOME = Archive(8, bytes(range(16)), [b"first", b"", b"third " * 50])


def sealed(framed: bytes) -> bytes:
    """The bytes with a valid CRC."""
    return framed + struct.pack(">I", crc32c.crc32c(framed))


@given(fragments)
def test_an_archive_object_reads_back_unchanged(fragment: Archive) -> None:
    again = decode_archive(encode_archive(fragment))
    assert again == fragment
    assert again.last == fragment.first + len(fragment.entries) - 1


@given(fragments, st.data())
def test_the_running_hash_after_any_entry_is_that_of_the_journal(fragment: Archive, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(fragment.entries)))
    expected = functools.reduce(next_hash, fragment.entries[:count], fragment.hash_before)
    assert hash_after(fragment, fragment.first - 1 + count) == expected


@settings(max_examples=30)
@given(fragments, st.data())
def test_any_changed_byte_is_found(fragment: Archive, data: st.DataObject) -> None:
    encoded = bytearray(encode_archive(fragment))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Corrupt):
        decode_archive(bytes(encoded))


def test_every_truncation_is_found() -> None:
    encoded = encode_archive(SOME)
    for length in range(len(encoded)):
        with pytest.raises(Corrupt):
            decode_archive(encoded[:length])


def test_an_object_of_a_later_version_is_rejected_with_its_version() -> None:
    framed = bytearray(encode_archive(SOME)[:-4])
    framed[8:10] = (2).to_bytes(2, "big")
    with pytest.raises(Corrupt, match="archive object of version 2, this release knows 1"):
        decode_archive(sealed(bytes(framed)))


def test_an_object_with_other_entries_than_its_header_is_rejected() -> None:
    framed = bytearray(encode_archive(SOME)[:-4])
    framed[18:26] = (99).to_bytes(8, "big")  # last
    with pytest.raises(Corrupt, match="of 3 entries, expected entries 8 to 99"):
        decode_archive(sealed(bytes(framed)))


def test_unpacking_uses_no_more_memory_than_the_header_allows() -> None:
    framed = bytearray(encode_archive(SOME)[:-4])
    framed[42:50] = (2**40).to_bytes(8, "big")  # unpacked length
    with pytest.raises(Corrupt, match="1099511627776 bytes of entries, at most"):
        decode_archive(sealed(bytes(framed)))
    framed[42:50] = (5).to_bytes(8, "big")
    with pytest.raises(Corrupt, match="6 bytes of entries, expected 5"):
        decode_archive(sealed(bytes(framed)))


@pytest.mark.parametrize(
    "unpacked", [b"\0\0\0", b"\0\0\0\5abc", b""], ids=["half a length", "half an entry", "nothing"]
)
def test_entries_shorter_than_their_lengths_are_rejected(unpacked: bytes) -> None:
    framed = struct.pack(">8sHQQ16sQ", archive_format.MAGIC, 1, 1, 1, GENESIS_HASH, len(unpacked))
    packed = archive_format.zstandard.ZstdCompressor().compress(unpacked)
    with pytest.raises(Corrupt, match="archive object"):
        decode_archive(sealed(framed + packed))


def test_repetitive_entries_are_compressed() -> None:
    fragment = Archive(1, GENESIS_HASH, [b"the same commit, again and again"] * 1000)
    assert len(encode_archive(fragment)) < 1000
