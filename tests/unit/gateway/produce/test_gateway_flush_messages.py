"""Flush messages: never larger than the bus allows, requests in order, parts of one request together."""

from hypothesis import given, strategies as st

from penstock.contracts.acls import PRINCIPAL_LENGTH_MAX
from penstock.contracts.batches import BatchMeta, BatchResult
from penstock.contracts.codec import encode_with_payload
from penstock.contracts.messages import FlushBatch, FlushReply
from penstock_gateway.produce.flush_packing import (
    Produce,
    batch_bytes_max,
    fits,
    head_of,
    pack,
    payload_of,
    record_finished,
    record_reply,
)
from tests.testkit.recorded_traces import traceparent

MESSAGE_BYTES_MAX = 4_096
GATEWAY = "g" * 64


def produce(number: int, sizes: list[int]) -> Produce:
    metas = [BatchMeta(size, 2**31 - 1, 2**62, 2**62, 2**15 - 1, 2**31 - 1, 2**15 - 1) for size in sizes]
    batches = [FlushBatch(bytes(range(16)), 2**31 - 1, meta) for meta in metas]
    return Produce(number, batches, [bytes([number % 256]) * size for size in sizes], 0.0)


sizes = st.lists(st.integers(61, batch_bytes_max(MESSAGE_BYTES_MAX)), min_size=1, max_size=12)


@given(
    st.lists(sizes, max_size=8),
    st.sampled_from(["", "User:bob", "ä" * PRINCIPAL_LENGTH_MAX, "\U0001f600" * 256]),
    st.sampled_from(["", traceparent(1)]),
)
def test_every_message_is_small_enough_and_nothing_is_lost_or_reordered(
    requests: list[list[int]], principal: str, trace: str
) -> None:
    produces = [produce(2**40 + number, each) for number, each in enumerate(requests)]
    for each in produces:
        each.principal = principal
        each.trace = trace
    messages = pack(produces, MESSAGE_BYTES_MAX)
    for message in messages:
        assert message, "no message is empty"
        head = head_of(message, GATEWAY)
        assert {(each.principal, each.trace) for each in head.produces} == {(principal, trace)}
        data = encode_with_payload(head, payload_of(message))
        assert len(data) <= MESSAGE_BYTES_MAX
    parts = [part for message in messages for part in message]
    assert [part.produce.number for part in parts] == sorted(part.produce.number for part in parts)
    carried = b"".join(bytes(buffer) for message in messages for buffer in payload_of(message))
    assert carried == b"".join(buffer for each in produces for buffer in each.payload)


@given(st.lists(sizes, max_size=8))
def test_parts_of_a_request_are_numbered_and_only_one_too_large_for_a_message_has_several(
    requests: list[list[int]],
) -> None:
    produces = [produce(number, each) for number, each in enumerate(requests)]
    messages = pack(produces, MESSAGE_BYTES_MAX)
    for each in produces:
        parts = [part for message in messages for part in message if part.produce is each]
        assert [part.number for part in parts] == list(range(each.parts))
        alone = encode_with_payload(
            head_of(pack([produce(1, [len(one) for one in each.payload])], 10**9)[0], GATEWAY), []
        )
        if len(parts) > 1:
            assert len(alone) + sum(map(len, each.payload)) > MESSAGE_BYTES_MAX // 2


def test_small_requests_share_a_message() -> None:
    assert len(pack([produce(number, [61]) for number in range(10)], MESSAGE_BYTES_MAX)) == 1


def test_a_request_is_finished_when_all_its_parts_are_answered() -> None:
    large = produce(1, [3_000, 3_000])
    first, second = pack([large], MESSAGE_BYTES_MAX)
    record_reply(FlushReply(1, [[BatchResult(0, 10)]]), first)
    assert record_finished(first) == []
    record_reply(FlushReply(1, [[BatchResult(0, 20)]]), second)
    assert record_finished(second) == [large]
    assert [result.base_offset for result in large.results] == [10, 20]


def test_a_reply_must_have_a_result_for_every_batch() -> None:
    (message,) = pack([produce(1, [61, 61]), produce(2, [61])], MESSAGE_BYTES_MAX)
    good = BatchResult(0)
    assert fits(FlushReply(1, [[good, good], [good]]), message)
    assert not fits(FlushReply(1, [[good, good]]), message)
    assert not fits(FlushReply(1, [[good], [good, good]]), message)
