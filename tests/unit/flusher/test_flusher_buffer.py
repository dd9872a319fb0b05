"""The active buffer closes when it is due, and returns its fragments in the order of arrival."""

import math

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock_flusher.buffer import ActiveBuffer, BufferLimits, Reason, TokenBucket

LIMITS = BufferLimits(bytes_max=1_000, batches_max=10, interval_s=0.25, quiet_s=0.003, quiet_under_way_max=1)


class Request(msgspec.Struct):
    number: int
    size_bytes: int
    batch_count: int = 1


def new_buffer(rate: float = 1_000.0) -> ActiveBuffer[Request]:
    return ActiveBuffer(LIMITS, TokenBucket(rate))


def test_an_empty_buffer_is_never_due() -> None:
    buffer = new_buffer()
    assert buffer.due_s(0) == math.inf
    assert buffer.reason_to_close(1e12, 0) is None


def test_bytes_close_it() -> None:
    buffer = new_buffer()
    buffer.add([Request(0, 999)], 0.0)
    assert buffer.reason_to_close(0.0, 0) is None
    buffer.add([Request(1, 1)], 0.0)
    assert buffer.reason_to_close(0.0, 0) is Reason.SIZE


def test_a_number_of_tiny_batches_closes_it() -> None:
    buffer = new_buffer()
    buffer.add([Request(0, 61, batch_count=9)], 0.0)
    assert buffer.reason_to_close(0.0, 0) is None
    buffer.add([Request(1, 61)], 0.0)
    assert buffer.reason_to_close(0.0, 0) is Reason.SIZE


def test_quiet_closes_it_before_the_timer() -> None:
    buffer = new_buffer()
    buffer.add([Request(0, 1)], 0.0)
    buffer.add([Request(1, 1)], 0.002)
    assert buffer.due_s(0) == pytest.approx(0.005)
    assert buffer.reason_to_close(0.004, 0) is None
    assert buffer.reason_to_close(0.005, 0) is Reason.QUIET


def test_while_bytes_keep_coming_only_the_timer_closes_it() -> None:
    buffer = new_buffer()
    for step in range(125):
        buffer.add([Request(step, 1, batch_count=0)], step * 0.002)
        assert buffer.reason_to_close(step * 0.002 + 0.001, 0) is None
    assert buffer.reason_to_close(0.25, 0) is Reason.TIMER


def test_with_too_many_segments_under_way_quiet_does_not_close_it() -> None:
    buffer = new_buffer()
    buffer.add([Request(0, 1)], 0.0)
    assert buffer.due_s(1) == 0.003
    assert buffer.reason_to_close(0.1, 1) is Reason.QUIET
    assert buffer.due_s(2) == 0.25
    assert buffer.reason_to_close(0.1, 2) is None
    assert buffer.reason_to_close(0.25, 2) is Reason.TIMER


def test_when_all_answered_producers_are_back_it_closes_at_once() -> None:
    buffer = new_buffer()
    buffer.add([Request(0, 1)], 0.0)
    buffer.record_answered(2, 0.001)
    buffer.add([Request(1, 1)], 0.002)
    assert buffer.reason_to_close(0.002, 0) is None
    buffer.add([Request(2, 1)], 0.0021)
    assert buffer.reason_to_close(0.0021, 0) is Reason.QUIET


def test_a_producer_that_does_not_come_back_delays_it_no_longer_than_quiet() -> None:
    buffer = new_buffer()
    buffer.add([Request(0, 1)], 0.0)
    buffer.record_answered(1, 0.002)
    assert buffer.reason_to_close(0.004, 0) is None
    assert buffer.due_s(0) == pytest.approx(0.005)
    assert buffer.reason_to_close(0.005, 0) is Reason.QUIET


def test_without_a_token_quiet_waits_for_one() -> None:
    buffer = new_buffer(rate=8.0)
    now_s = 0.0
    for number in range(8):
        buffer.add([Request(number, 1)], now_s)
        now_s += 0.003
        assert buffer.reason_to_close(now_s, 0) is Reason.QUIET
        buffer.close(Reason.QUIET, now_s)
    buffer.add([Request(8, 1)], now_s)
    assert buffer.reason_to_close(now_s + 0.003, 0) is None
    assert now_s + 0.003 < buffer.due_s(0) <= now_s + 1 / 8
    assert buffer.reason_to_close(buffer.due_s(0), 0) is Reason.QUIET


def test_a_close_for_another_reason_costs_no_token() -> None:
    tokens = TokenBucket(8.0)
    ActiveBuffer[Request](LIMITS, tokens).close(Reason.TIMER, 5.0)
    assert tokens.ready_s == -math.inf


@given(
    rate=st.sampled_from([0.5, 1.0, 8.0, 100.0]),
    waits=st.lists(st.floats(0, 0.5), max_size=60),
)
def test_no_interval_has_more_quiet_closes_than_the_rate_and_the_kept_tokens(rate: float, waits: list[float]) -> None:
    tokens = TokenBucket(rate)
    taken = []
    now_s = 0.0
    for wait_s in waits:
        now_s += wait_s
        if now_s >= tokens.ready_s:
            tokens.take(now_s)
            taken.append(now_s)
    kept = max(1.0, rate)
    for index, start_s in enumerate(taken):
        for count, end_s in enumerate(taken[index:], 1):
            assert count <= kept + rate * (end_s - start_s) + 1e-6


@given(st.lists(st.tuples(st.floats(0, 0.4), st.integers(1, 700), st.integers(1, 6)), max_size=60))
def test_all_requests_come_out_once_in_order_and_within_the_interval(
    steps: list[tuple[float, int, int]],
) -> None:
    buffer = new_buffer(rate=8.0)
    now_s, number = 100.0, 0
    came: dict[int, float] = {}
    closed: list[tuple[float, list[Request]]] = []

    def close_all_due(until_s: float) -> None:
        while (due_s := buffer.due_s(0)) < math.inf and due_s <= until_s:
            reason = buffer.reason_to_close(due_s, 0)
            assert reason in {Reason.TIMER, Reason.QUIET}
            closed.append((due_s, buffer.close(reason, due_s)))

    for wait_s, size_bytes, count in steps:
        close_all_due(now_s + wait_s)
        now_s += wait_s
        request = [Request(number + index, size_bytes) for index in range(count)]
        number += count
        came |= {each.number: now_s for each in request}
        buffer.add(request, now_s)
        if buffer.reason_to_close(now_s, 0) is Reason.SIZE:
            closed.append((now_s, buffer.close(Reason.SIZE, now_s)))
    close_all_due(math.inf)
    assert [each.number for _, requests in closed for each in requests] == list(range(number))
    for closed_s, requests in closed:
        assert all(closed_s <= came[each.number] + LIMITS.interval_s + 1e-9 for each in requests)


def test_after_a_crowded_answer_there_are_fewer_segments_for_a_while() -> None:
    buffer = new_buffer()
    buffer.add([Request(0, 1)], 0.0)
    buffer.record_answered(1, 0.001, is_crowded=True)
    crowded_until_s = 0.001 + LIMITS.crowded_s
    assert buffer.due_s(0) == LIMITS.crowded_interval_s
    buffer.close(Reason.TIMER, 1.0)
    buffer.add([Request(1, 1_000)], 2.0)
    assert buffer.reason_to_close(2.0, 0) is Reason.SIZE
    buffer.close(Reason.SIZE, 2.0)
    buffer.add([Request(2, 1)], crowded_until_s)
    assert buffer.due_s(0) == crowded_until_s + LIMITS.quiet_s
