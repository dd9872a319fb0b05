"""The pipeline: frames in and answers out in order, for any bytes, any completion order and any budget."""

import struct

import pytest
from hypothesis import given, strategies as st

from penstock.kafkawire.errors import DecodeError
from penstock_gateway.server.pipeline import Pipeline, Slot
from penstock_gateway.server.receive_budget import ReceiveBudget

FRAME_BYTES_MAX = 1_000


class Waiter:
    """A reader that counts the calls of the budget."""

    def __init__(self, partial_bytes: int = 5, frame_bytes: int = 10) -> None:
        self.partial_bytes = partial_bytes
        self.partial_frame = (0, frame_bytes)
        self.calls = 0

    def on_room(self) -> None:
        self.calls += 1


def new_pipeline(budget: ReceiveBudget | None = None, in_flight: int = 1_000) -> Pipeline:
    budget = budget or ReceiveBudget(10**9)
    return Pipeline(budget, frame_bytes_max=FRAME_BYTES_MAX, requests_in_flight_max=in_flight)


def receive(pipeline: Pipeline, data: bytes) -> None:
    while data:
        buffer = pipeline.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        pipeline.received(count)
        data = data[count:]


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def frames_of(pipeline: Pipeline) -> list[tuple[Slot, bytes]]:
    found = []
    while (begun := pipeline.next_frame()) is not None:
        found.append((begun[0], bytes(begun[1])))
    return found


@given(st.lists(st.binary(max_size=50), max_size=20), st.data())
def test_frames_come_out_whole_and_in_order_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    pipeline = new_pipeline()
    stream = b"".join(map(frame, bodies))
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        receive(pipeline, stream[:size])
        stream = stream[size:]
        found += [body for _, body in frames_of(pipeline)]
    assert found == bodies
    assert pipeline.partial_bytes == 0


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_answers_leave_in_the_order_of_the_requests(order: list[int], unanswered_kinds: set[int]) -> None:
    """This holds also if some requests, like Produce with acks=0, get no answer."""
    budget = ReceiveBudget(10**9)
    pipeline = new_pipeline(budget)
    receive(pipeline, b"".join(frame(bytes([number])) for number in range(8)))
    slots = [slot for slot, _ in frames_of(pipeline)]
    sent: list[bytes] = []
    for number in order:
        pipeline.answer(slots[number], () if number in unanswered_kinds else [b"a", bytes([number])])
        sent += map(bytes, pipeline.take_output())
    expected = [part for number in range(8) if number not in unanswered_kinds for part in (b"a", bytes([number]))]
    assert sent == expected
    assert (pipeline.unanswered, budget.held_bytes, budget.complete_bytes) == (0, 0, 0)


def test_an_answer_waits_for_those_before_it() -> None:
    pipeline = new_pipeline()
    receive(pipeline, frame(b"first") + frame(b"second"))
    (first, _), (second, _) = frames_of(pipeline)
    pipeline.answer(second, [b"2"])
    assert pipeline.take_output() == []
    pipeline.answer(first, [b"1"])
    assert pipeline.take_output() == [b"1", b"2"]


@given(st.binary(max_size=400), st.integers(1, 60))
def test_no_bytes_make_it_raise_anything_but_a_decode_error(data: bytes, step: int) -> None:
    budget = ReceiveBudget(10**9)
    pipeline = new_pipeline(budget)
    for start in range(0, len(data), step):
        receive(pipeline, data[start : start + step])
        try:
            frames_of(pipeline)
        except DecodeError:
            pipeline.reject_rest()
            break
    pipeline.close()
    assert (budget.held_bytes, budget.complete_bytes) == (0, 0)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=6), st.data())
def test_mutated_frames_never_raise_anything_but_a_decode_error(bodies: list[bytes], data: st.DataObject) -> None:
    stream = bytearray(b"".join(map(frame, bodies)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    pipeline = new_pipeline()
    receive(pipeline, bytes(stream))
    try:
        found = frames_of(pipeline)
    except DecodeError:
        return
    assert sum(len(body) + 4 for _, body in found) + pipeline.partial_bytes == len(stream)


@pytest.mark.parametrize("length", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_an_impossible_length_is_rejected_after_earlier_requests_are_answered(length: int) -> None:
    pipeline = new_pipeline()
    receive(pipeline, frame(b"good") + struct.pack(">i", length))
    begun = pipeline.next_frame()
    assert begun is not None
    with pytest.raises(DecodeError, match=f"frame of {length} bytes"):
        pipeline.next_frame()
    pipeline.reject_rest()
    assert pipeline.take_output() == [] and not pipeline.is_finished
    pipeline.answer(begun[0], [b"answer"])
    assert pipeline.take_output() == [b"answer"]
    assert pipeline.is_finished


def test_a_rejected_request_ends_the_connection_at_its_place_and_no_other_begins() -> None:
    pipeline = new_pipeline()
    receive(pipeline, frame(b"1") + frame(b"bad") + frame(b"3"))
    (first, _), (bad, _), (third, _) = frames_of(pipeline)
    pipeline.reject(bad)
    assert not pipeline.has_room
    pipeline.answer(third, [b"never sent"])
    pipeline.answer(first, [b"sent"])
    assert pipeline.take_output() == [b"sent"]
    assert pipeline.is_finished
    assert pipeline.take_output() == []


def test_no_more_requests_begin_than_may_be_in_flight() -> None:
    pipeline = new_pipeline(in_flight=2)
    receive(pipeline, frame(b"1") + frame(b"2") + frame(b"3"))
    first = pipeline.next_frame()
    assert first is not None and pipeline.has_room
    pipeline.next_frame()
    assert not pipeline.has_room
    pipeline.answer(first[0], ())
    pipeline.take_output()
    assert pipeline.has_room


def test_bytes_are_held_until_their_answer_leaves() -> None:
    budget = ReceiveBudget(10**9)
    pipeline = new_pipeline(budget)
    receive(pipeline, frame(b"12345678") + b"\0\0")
    assert budget.held_bytes == 14
    begun = pipeline.next_frame()
    assert begun is not None and pipeline.partial_bytes == 2
    pipeline.answer(begun[0], [b"x"])
    assert budget.held_bytes == 14
    pipeline.take_output()
    assert budget.held_bytes == 2
    pipeline.close()
    assert budget.held_bytes == 0


def test_a_spent_budget_stops_readers_and_calls_them_back() -> None:
    budget, reader = ReceiveBudget(10), Waiter()
    assert budget.may_read(reader)
    budget.hold(10)
    budget.begin_frame(10)
    assert not budget.may_read(reader)
    budget.release(10, 10)
    assert reader.calls == 1
    assert budget.may_read(reader)


def test_a_budget_spent_on_unfinished_frames_lets_one_reader_finish_its_own() -> None:
    """Otherwise no request would ever be answered, and no bytes given back."""
    budget, first, second = ReceiveBudget(10), Waiter(), Waiter()
    budget.hold(10)
    assert budget.may_read(first)
    assert not budget.may_read(second)
    budget.begin_frame(5)
    assert not budget.may_read(first), "its frame is complete; the answer gives bytes back"
    budget.release(5, 5)
    assert (first.calls, second.calls) == (1, 1)


def test_a_reader_that_holds_no_part_of_a_frame_does_not_hold_up_those_that_do() -> None:
    budget, quiet, busy = ReceiveBudget(10), Waiter(partial_bytes=0), Waiter()
    budget.hold(10)
    assert not budget.may_read(quiet)
    assert budget.may_read(busy)


def test_a_reader_that_is_removed_lets_the_next_one_read() -> None:
    budget, first, second = ReceiveBudget(10), Waiter(), Waiter()
    budget.hold(10)
    budget.may_read(first)
    assert not budget.may_read(second)
    budget.remove(first)
    assert second.calls == 1
    assert budget.may_read(second)


MIB = 1024 * 1024


def test_large_frames_are_received_one_after_the_other_if_they_do_not_fit_into_half_of_the_budget() -> None:
    budget = ReceiveBudget(256 * MIB)
    large = [Waiter(frame_bytes=95 * MIB) for _ in range(3)]
    small, ordinary = Waiter(frame_bytes=1_000), Waiter(frame_bytes=MIB)
    assert [budget.may_read(each) for each in large] == [True, False, False]
    assert budget.may_read(small) and budget.may_read(ordinary), "others pass the large frames that wait"
    assert budget.reserved_bytes == 96 * MIB
    assert budget.is_contended
    budget.remove(large[0])
    assert [each.calls for each in large] == [0, 1, 0]
    assert [budget.may_read(each) for each in large[1:]] == [True, False]
    budget.remove(large[1])
    budget.remove(large[2])
    budget.remove(ordinary)
    assert (budget.reserved_bytes, budget.is_contended) == (0, False)


def test_a_reservation_ends_with_its_frame_and_the_next_one_queues_again() -> None:
    budget = ReceiveBudget(20 * MIB)
    busy, waiting = Waiter(frame_bytes=8 * MIB), Waiter(frame_bytes=8 * MIB)
    assert budget.may_read(busy)
    assert not budget.may_read(waiting)
    busy.partial_frame = (1, 8 * MIB)  # its first frame is complete
    assert not budget.may_read(busy), "the other connection waited longer"
    assert waiting.calls == 1
    assert budget.may_read(waiting)


def test_a_frame_above_the_limit_of_all_reservations_is_received_alone() -> None:
    budget = ReceiveBudget(10 * MIB)
    huge, other = Waiter(frame_bytes=50 * MIB), Waiter(frame_bytes=MIB)
    assert budget.may_read(huge)
    assert not budget.may_read(other)


def test_complete_frames_that_wait_do_not_keep_a_spent_budget_from_favouring_a_frame() -> None:
    """A Fetch may wait for minutes; its own small frame is no reason to stop all connections."""
    budget, first = ReceiveBudget(100), Waiter()
    budget.hold(100)
    budget.begin_frame(5)
    assert budget.may_read(first)
    assert budget.is_contended
