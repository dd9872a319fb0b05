"""The newest segments are kept in memory within a limit, and ranges of them are exact."""

from hypothesis import given, strategies as st

from penstock_flusher.budget import THROTTLE_MS_MAX, Budget
from penstock_flusher.recent import BUFFER_OVERHEAD_BYTES, RecentSegments


def test_the_oldest_segment_is_evicted_first_even_if_it_was_read() -> None:
    recent = RecentSegments(2 * (100 + BUFFER_OVERHEAD_BYTES))
    recent.put(b"a", [bytes(100)], 100)
    recent.put(b"b", [bytes(100)], 100)
    assert recent.read(b"a", 0, 1)
    recent.put(b"c", [bytes(100)], 100)
    assert recent.read(b"a", 0, 1) is None
    assert recent.read(b"b", 0, 1)
    assert recent.read(b"c", 0, 1)


def test_a_segment_larger_than_the_bound_is_not_kept() -> None:
    recent = RecentSegments(1_000)
    recent.put(b"a", [bytes(5_000)], 5_000)
    assert len(recent) == 0
    assert recent.held_bytes == 0


def test_a_discarded_segment_is_gone_with_its_weight() -> None:
    recent = RecentSegments(10_000)
    recent.put(b"a", [bytes(100)], 100)
    recent.discard(b"a")
    recent.discard(b"a")
    assert recent.held_bytes == 0
    assert recent.read(b"a", 0, 1) is None


@given(st.lists(st.integers(0, 300), max_size=40))
def test_the_limit_holds_and_the_weight_is_that_of_the_kept_segments(sizes: list[int]) -> None:
    recent = RecentSegments(2_000)
    for number, size in enumerate(sizes):
        recent.put(number.to_bytes(16, "big"), [bytes(size)], size)
        assert recent.held_bytes <= 2_000
    kept = sizes[len(sizes) - len(recent) :]
    assert recent.held_bytes == sum(kept) + len(kept) * BUFFER_OVERHEAD_BYTES


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=8), st.integers(-2, 60), st.integers(-2, 60))
def test_a_range_equals_that_of_the_joined_bytes(buffers: list[bytes], position: int, length: int) -> None:
    recent = RecentSegments(100_000)
    body = b"".join(buffers)
    recent.put(b"a", buffers, len(body))
    found = recent.read(b"a", position, length)
    if position >= 0 and length > 0 and position + length <= len(body):
        assert found is not None
        assert b"".join(found) == body[position : position + length]
    else:
        assert found is None


def test_the_budget_rejects_bytes_that_do_not_fit_and_accepts_them_later() -> None:
    budget = Budget(100)
    assert budget.take(60)
    assert not budget.take(41)
    assert budget.take(40)
    budget.release(60)
    assert budget.take(60)


def test_senders_are_asked_to_slow_down_from_half_of_the_budget_on() -> None:
    budget = Budget(1_000)
    hints = []
    for _ in range(10):
        assert budget.take(100)
        hints.append(budget.throttle_ms())
    assert hints[:5] == [0] * 5
    assert hints[5:] == sorted(set(hints[5:]))
    assert hints[-1] == THROTTLE_MS_MAX
