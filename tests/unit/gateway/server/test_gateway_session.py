"""The session: frames in and answers out in order, whatever the bytes, the completion order and the budget."""

import struct

import pytest
from hypothesis import given, strategies as st

from penstock.kafkawire.errors import DecodeError
from penstock_gateway.server.pipeline import Pipeline, ReceiveBudget, Slot

FRAME_BYTES_MAX = 1_000


class Waiter:
    """A reader that notes when the budget calls it."""

    def __init__(self, partial_bytes: int = 5) -> None:
        self.partial_bytes = partial_bytes
        self.calls = 0

    def on_room(self) -> None:
        self.calls += 1


def new_session(budget: ReceiveBudget | None = None, in_flight: int = 1_000) -> Pipeline:
    budget = budget or ReceiveBudget(10**9)
    return Pipeline(budget, frame_bytes_max=FRAME_BYTES_MAX, requests_in_flight_max=in_flight)


def receive(session: Pipeline, data: bytes) -> None:
    while data:
        buffer = session.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        session.received(count)
        data = data[count:]


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def frames_of(session: Pipeline) -> list[tuple[Slot, bytes]]:
    found = []
    while (begun := session.next_frame()) is not None:
        found.append((begun[0], bytes(begun[1])))
    return found


@given(st.lists(st.binary(max_size=50), max_size=20), st.data())
def test_frames_come_out_whole_and_in_order_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    session = new_session()
    stream = b"".join(map(frame, bodies))
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        receive(session, stream[:size])
        stream = stream[size:]
        found += [body for _, body in frames_of(session)]
    assert found == bodies
    assert session.partial_bytes == 0


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_answers_leave_in_the_order_of_the_requests(order: list[int], unanswered_kinds: set[int]) -> None:
    """Also when some requests, like Produce with acks=0, get no answer."""
    budget = ReceiveBudget(10**9)
    session = new_session(budget)
    receive(session, b"".join(frame(bytes([number])) for number in range(8)))
    slots = [slot for slot, _ in frames_of(session)]
    sent: list[bytes] = []
    for number in order:
        session.answer(slots[number], () if number in unanswered_kinds else [b"a", bytes([number])])
        sent += map(bytes, session.take_output())
    expected = [part for number in range(8) if number not in unanswered_kinds for part in (b"a", bytes([number]))]
    assert sent == expected
    assert (session.unanswered, budget.held_bytes, budget.frames) == (0, 0, 0)


def test_an_answer_waits_for_those_before_it() -> None:
    session = new_session()
    receive(session, frame(b"first") + frame(b"second"))
    (first, _), (second, _) = frames_of(session)
    session.answer(second, [b"2"])
    assert session.take_output() == []
    session.answer(first, [b"1"])
    assert session.take_output() == [b"1", b"2"]


@given(st.binary(max_size=400), st.integers(1, 60))
def test_no_bytes_make_it_raise_anything_but_a_decode_error(data: bytes, step: int) -> None:
    budget = ReceiveBudget(10**9)
    session = new_session(budget)
    for start in range(0, len(data), step):
        receive(session, data[start : start + step])
        try:
            frames_of(session)
        except DecodeError:
            session.reject_rest()
            break
    session.close()
    assert (budget.held_bytes, budget.frames) == (0, 0)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=6), st.data())
def test_mutated_frames_never_raise_anything_but_a_decode_error(bodies: list[bytes], data: st.DataObject) -> None:
    stream = bytearray(b"".join(map(frame, bodies)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    session = new_session()
    receive(session, bytes(stream))
    try:
        found = frames_of(session)
    except DecodeError:
        return
    assert sum(len(body) + 4 for _, body in found) + session.partial_bytes == len(stream)


@pytest.mark.parametrize("length", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_after_what_was_asked_before_is_answered(length: int) -> None:
    session = new_session()
    receive(session, frame(b"good") + struct.pack(">i", length))
    begun = session.next_frame()
    assert begun is not None
    with pytest.raises(DecodeError, match=f"frame of {length} bytes"):
        session.next_frame()
    session.reject_rest()
    assert session.take_output() == [] and not session.is_finished
    session.answer(begun[0], [b"answer"])
    assert session.take_output() == [b"answer"]
    assert session.is_finished


def test_a_refused_request_ends_the_connection_in_its_turn_and_lets_no_other_begin() -> None:
    session = new_session()
    receive(session, frame(b"1") + frame(b"bad") + frame(b"3"))
    (first, _), (bad, _), (third, _) = frames_of(session)
    session.reject(bad)
    assert not session.has_room
    session.answer(third, [b"never sent"])
    session.answer(first, [b"sent"])
    assert session.take_output() == [b"sent"]
    assert session.is_finished
    assert session.take_output() == []


def test_no_more_requests_begin_than_may_be_in_flight() -> None:
    session = new_session(in_flight=2)
    receive(session, frame(b"1") + frame(b"2") + frame(b"3"))
    first = session.next_frame()
    assert first is not None and session.has_room
    session.next_frame()
    assert not session.has_room
    session.answer(first[0], ())
    session.take_output()
    assert session.has_room


def test_bytes_are_held_until_their_answer_leaves() -> None:
    budget = ReceiveBudget(10**9)
    session = new_session(budget)
    receive(session, frame(b"12345678") + b"\0\0")
    assert budget.held_bytes == 14
    begun = session.next_frame()
    assert begun is not None and session.partial_bytes == 2
    session.answer(begun[0], [b"x"])
    assert budget.held_bytes == 14
    session.take_output()
    assert budget.held_bytes == 2
    session.close()
    assert budget.held_bytes == 0


def test_a_spent_budget_stops_readers_and_calls_them_back() -> None:
    budget, reader = ReceiveBudget(10), Waiter()
    assert budget.may_read(reader)
    budget.hold(10)
    budget.begin_frame()
    assert not budget.may_read(reader)
    budget.release(10, 1)
    assert reader.calls == 1
    assert budget.may_read(reader)


def test_a_budget_spent_on_unfinished_frames_lets_one_reader_finish_its_own() -> None:
    """Else nothing would ever be answered, and nothing given back."""
    budget, first, second = ReceiveBudget(10), Waiter(), Waiter()
    budget.hold(10)
    assert budget.may_read(first)
    assert not budget.may_read(second)
    budget.begin_frame()
    assert not budget.may_read(first), "its frame is complete; the answer gives bytes back"
    budget.release(5, 1)
    assert (first.calls, second.calls) == (1, 1)


def test_a_reader_that_holds_no_part_of_a_frame_does_not_hold_up_those_that_do() -> None:
    budget, quiet, busy = ReceiveBudget(10), Waiter(partial_bytes=0), Waiter()
    budget.hold(10)
    assert not budget.may_read(quiet)
    assert budget.may_read(busy)


def test_a_reader_that_goes_away_makes_room_for_the_next() -> None:
    budget, first, second = ReceiveBudget(10), Waiter(), Waiter()
    budget.hold(10)
    budget.may_read(first)
    assert not budget.may_read(second)
    budget.remove(first)
    assert second.calls == 1
    assert budget.may_read(second)
