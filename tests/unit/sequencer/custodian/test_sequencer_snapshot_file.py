"""Snapshots as objects: they read back unchanged, and every damage is found."""

import io
from pathlib import Path

import crc32c
import msgspec
import pytest

from penstock.contracts.commands import CreateTopic
from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import new_topic_id
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import snapshot_key
from penstock_sequencer.core.groups.classic_group import new_group
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import FRAGMENT_BYTES, encode_fragments, encode_state
from penstock_sequencer.core.state.cluster import NOT_NAMED, Committed, new_state
from penstock_sequencer.storage.snapshot_format import (
    FORMAT_VERSION,
    HASHES_MAX,
    HEAD_BYTES,
    PayloadCheck,
    Snapshot,
    UnknownVersion,
    encode_head,
    encode_snapshot,
    read_head,
    read_snapshot,
    read_snapshot_file,
    write_snapshot,
)
from penstock_sequencer.storage.snapshot_store import put_snapshot

HASHES = [bytes([number]) * 16 for number in range(3)]


def snapshot(topics: int = 3, cluster: str = "test") -> Snapshot:
    state = new_state()
    for number in range(1, topics + 1):
        topic_id = new_topic_id(number.to_bytes(16, "big"))
        apply_entry(state, number, [[CreateTopic(1_000 + number, f"t{number}", topic_id, 2, {})]])
    return Snapshot(cluster, HASHES, state)


def test_a_snapshot_is_read_as_it_was_written() -> None:
    written = snapshot()
    read = read_snapshot(encode_snapshot(written))
    assert (read.cluster, read.hashes) == ("test", HASHES)
    assert encode_state(read.state) == encode_state(written.state)


def test_a_file_is_read_as_its_bytes_are(tmp_path: Path) -> None:
    written = snapshot()
    with (tmp_path / "snapshot").open("w+b") as out:
        write_snapshot(out, written)
        read = read_snapshot_file(out)
    assert (read.cluster, read.hashes, encode_state(read.state)) == ("test", HASHES, encode_state(written.state))


def test_no_fragment_of_a_large_state_is_much_larger_than_one_group() -> None:
    state = new_state()
    for number in range(300):
        group = new_group(state, f"g{number}", NOT_NAMED)
        group.offsets["t"] = {partition: Committed(partition, 0, "x" * 4_000) for partition in range(5)}
    lengths = [len(fragment) for fragment in encode_fragments(state)]
    assert len(lengths) > 5
    assert max(lengths) < FRAGMENT_BYTES + 30_000
    assert len(read_snapshot(encode_snapshot(Snapshot("test", HASHES, state))).state.groups) == 300


def test_its_head_has_its_place() -> None:
    data = encode_snapshot(snapshot())
    head = read_head(data[:HEAD_BYTES])
    assert (head.cluster, head.sequence, head.clock_ms, head.running_hash) == ("test", 3, 1_003, HASHES[-1])
    assert head.payload_length == len(data) - HEAD_BYTES


def test_the_same_state_has_the_same_bytes_in_memory_and_in_a_file(tmp_path: Path) -> None:
    with (tmp_path / "snapshot").open("w+b") as out:
        write_snapshot(out, snapshot())
    assert (tmp_path / "snapshot").read_bytes() == encode_snapshot(snapshot())


def test_only_the_newest_hashes_are_kept() -> None:
    many = [number.to_bytes(16, "big") for number in range(HASHES_MAX + 5)]
    read = read_snapshot(encode_snapshot(Snapshot("test", many, new_state())))
    assert read.hashes == many[5:]


def test_the_longest_cluster_name_fits() -> None:
    assert read_snapshot(encode_snapshot(snapshot(cluster="c" * 64))).cluster == "c" * 64


def test_any_changed_byte_and_every_truncation_are_found() -> None:
    data = encode_snapshot(snapshot())
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x20
        with pytest.raises(Corrupt) as caught:
            read_snapshot(bytes(damaged))
        assert not isinstance(caught.value, UnknownVersion)
        with pytest.raises(Corrupt):
            read_snapshot(data[:place])
    with pytest.raises(Corrupt, match="of payload"):
        read_snapshot(data + b"x")


def of_later_version() -> bytes:
    data = bytearray(encode_snapshot(snapshot()))
    data[8:10] = (FORMAT_VERSION + 1).to_bytes(2, "big")
    data[12:16] = crc32c.crc32c(data[:12]).to_bytes(4, "big")
    return bytes(data)


def test_a_later_version_is_not_reported_as_damage() -> None:
    with pytest.raises(UnknownVersion, match="snapshot of version 4, this release knows 3"):
        read_snapshot(of_later_version())


async def test_a_custodian_of_an_earlier_release_does_not_delete_the_snapshot_of_its_successor() -> None:
    """Both may take a snapshot after the same entry, and the later release has recorded its own in the journal."""
    store, stored = MemoryStore(), of_later_version()
    key = snapshot_key("", "test", 3)
    await store.put(key, [stored])
    with pytest.raises(UnknownVersion):
        await put_snapshot(store, "test", 3, encode_snapshot(snapshot()))
    assert await store.get(key) == stored


def with_head(data: bytes, **changes: int) -> bytes:
    """The same snapshot with another head and valid CRCs."""
    head = read_head(data)
    out = io.BytesIO(data)
    out.write(encode_head(msgspec.structs.replace(head, **changes)))
    return out.getvalue()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"sequence": 4}, "a state of entry 3 and a head of entry 4"),
        ({"hashes": 0}, "with 0 hashes"),
        ({"content_length": 2**40}, "a content of 1099511627776 bytes"),
        ({"content_length": 10}, "cannot be decompressed|a content of"),
        ({"hashes": 2}, "a state that cannot be read"),
    ],
)
def test_a_head_that_does_not_fit_its_payload_is_found(changes: dict[str, int], found: str) -> None:
    with pytest.raises(Corrupt, match=found):
        read_snapshot(with_head(encode_snapshot(snapshot()), **changes))


def test_a_payload_is_checked_in_fragments_of_any_size() -> None:
    data = encode_snapshot(snapshot())
    head = read_head(data)
    for size in (1, 7, len(data)):
        check = PayloadCheck(head)
        for start in range(HEAD_BYTES, len(data), size):
            check.take(data[start : start + size])
        check.finish()
    short = PayloadCheck(head)
    short.take(data[HEAD_BYTES:-1])
    with pytest.raises(Corrupt, match="bytes of payload"):
        short.finish()
