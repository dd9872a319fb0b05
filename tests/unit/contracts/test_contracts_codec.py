"""Messages and journal entries decode to the encoded values, and damaged bytes always raise `Corrupt`."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts import codec, commands, entries, messages
from penstock.contracts.batches import BatchMeta, BatchResult, BatchRun, Extent, SegmentRef
from penstock.contracts.errors import Corrupt
from penstock.contracts.queries import log as queries
from penstock.contracts.rejections import Rejection, rejection_text

NEWER_REJECTION = 9_999
SEGMENT = SegmentRef(b"s" * 16, 0, 1000, "flusher-1", "z1")
COMMIT = commands.CommitSegment(
    5, b"s" * 16, 1000, "f", "z", [BatchRun(b"t" * 16, 3, 64, [BatchMeta(100, 2, 7, -1, -1, -1, 0)])]
)
JOIN = commands.JoinGroup(
    1, "g", "", "m", None, True, "c", "h", 10_000, 60_000, "consumer", [commands.GroupProtocol("range", b"\x00")]
)
MESSAGES = [
    commands.CommandRequest([commands.Tick(1), COMMIT, JOIN, commands.DeleteTopic(1, "t", bytes(16))]),
    commands.CommandReply(
        9,
        [
            commands.Done(),
            commands.Rejected(Rejection.TOPIC_EXISTS, "no"),
            commands.SegmentCommitted([[BatchResult(0, 5, 0)]]),
            commands.Joined(1, "consumer", "range", "a", "b", [commands.JoinedMember("a", None, b"")]),
            commands.Waiting("m", 3),
            commands.PerItem([Rejection.NONE]),
        ],
    ),
    queries.PlanQuery(3, [queries.PlanPartition(b"t" * 16, 0, 5, 100)], 1000),
    queries.Plan(
        3, [queries.PartitionPlan(b"t" * 16, 0, Rejection.NONE, 0, 5, 5, [Extent(0, 4, SEGMENT, 64, 500, 7)])]
    ),
    messages.Advanced(4, [messages.PartitionAdvance(b"t" * 16, 0, 0, 5, 5, [Extent(0, 4, SEGMENT, 64, 1, 7)])], ["t"]),
    messages.Presence(
        "gateway", "z1", "g-1", "0.1.0", leaving=True, listeners=(messages.ListenerAddress("PLAINTEXT", "h", 9092),)
    ),
    messages.Presence("sequencer", "z1", "s-1", "0.1.0", cluster_use=messages.ClusterUse(1, 2, 3, 4, 5)),
    messages.Presence("flusher", "z1", "f-1", "0.1.0", seen_sequence=7),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_reads_back_as_it_was(message: object) -> None:
    assert codec.decode(codec.encode(message), type(message)) == message


def test_a_rejection_of_a_newer_release_keeps_its_number() -> None:
    data = bytes([codec.VERSION]) + msgspec.msgpack.encode(
        [9, [[2, NEWER_REJECTION, "no"], [10, [0, NEWER_REJECTION]]]]
    )
    reply = codec.decode(data, commands.CommandReply)
    rejected, per_item = reply.outcomes
    assert isinstance(rejected, commands.Rejected)
    assert isinstance(per_item, commands.PerItem)
    assert rejected.rejection == per_item.rejections[1] == NEWER_REJECTION
    assert per_item.rejections[0] is Rejection.NONE
    assert rejection_text(rejected.rejection) == "rejection_9999"
    assert codec.decode(codec.encode(reply), commands.CommandReply) == reply


@given(st.lists(st.binary(max_size=50)))
def test_a_payload_follows_its_head_unchanged(payload: list[bytes]) -> None:
    head = messages.CacheReply([len(part) for part in payload])
    decoded, rest = codec.decode_with_payload(codec.encode_with_payload(head, payload), messages.CacheReply)
    assert decoded == head
    assert bytes(rest) == b"".join(payload)


@given(st.binary(max_size=200))
def test_random_bytes_are_corrupt_or_a_message(data: bytes) -> None:
    try:
        message = codec.decode(data, messages.FlushRequest)
    except Corrupt:
        pass
    else:
        assert isinstance(message, messages.FlushRequest)
    try:
        head, payload = codec.decode_with_payload(data, messages.FlushRequest)
    except Corrupt:
        return
    assert isinstance(head, messages.FlushRequest)
    assert data.endswith(payload)


def test_another_version_is_corrupt() -> None:
    data = bytearray(codec.encode(MESSAGES[0]))
    data[0] += 1
    with pytest.raises(Corrupt, match="version 2"):
        codec.decode(data, commands.CommandRequest)


ENTRY = entries.Entry("r1-1", "r1", 7, b"h" * 16, [[commands.Tick(1)], [COMMIT, JOIN]])


def test_a_journal_entry_reads_back_as_it_was() -> None:
    assert entries.decode_entry(entries.encode_entry(ENTRY)) == ENTRY


def test_a_journal_entry_with_any_byte_changed_is_corrupt() -> None:
    data = entries.encode_entry(ENTRY)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(Corrupt):
            entries.decode_entry(bytes(damaged))


def test_a_truncated_journal_entry_is_corrupt() -> None:
    data = entries.encode_entry(ENTRY)
    for length in range(len(data)):
        with pytest.raises(Corrupt):
            entries.decode_entry(data[:length])


def test_the_running_hash_depends_on_every_entry_before() -> None:
    first, second = b"one", b"two"
    there = entries.next_hash(entries.next_hash(entries.GENESIS_HASH, first), second)
    back = entries.next_hash(entries.next_hash(entries.GENESIS_HASH, second), first)
    assert len(there) == entries.HASH_BYTES
    assert there != back
