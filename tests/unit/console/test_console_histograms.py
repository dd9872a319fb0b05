"""Rates and times between two readings of metrics are those that Prometheus would compute."""

import math

import pytest
from hypothesis import given, strategies as st

from penstock.cli.diagnosis.processes import Samples
from penstock_console.survey.histograms import Times, grown, quantile, times, total

NAME = "penstock_gateway_request_seconds"
PRODUCE, FETCH = (("api", "Produce"),), (("api", "Fetch"),)
ENDS = (0.01, 0.1, 1.0, math.inf)


def histogram(counts: tuple[int, ...], labels: tuple[tuple[str, str], ...] = PRODUCE, sum_s: float = 0.0) -> Samples:
    """Samples with so many times in each bucket, that is not cumulative here."""
    found: Samples = {(f"{NAME}_count", labels): float(sum(counts)), (f"{NAME}_sum", labels): sum_s}
    below = 0
    for end, count in zip(ENDS, counts, strict=True):
        below += count
        text = "+Inf" if end == math.inf else str(end)
        found[(f"{NAME}_bucket", tuple(sorted((*labels, ("le", text)))))] = float(below)
    return found


def test_a_counter_grows_by_the_sum_over_all_samples_with_the_labels() -> None:
    before = {("n", (("a", "1"),)): 5.0, ("other", (("a", "1"),)): 0.0}
    after = {("n", (("a", "1"),)): 7.0, ("n", (("a", "2"), ("b", "x"))): 3.0, ("other", (("a", "1"),)): 9.0}
    assert (grown(before, after, "n"), grown(before, after, "n", a="2"), grown(before, after, "n", a="3")) == (5, 3, 0)
    assert (total(after, "n"), total(after, "n", b="x"), total(after, "gone")) == (10, 3, 0)


def test_a_counter_of_a_process_that_restarted_does_not_shrink() -> None:
    before = {("n", (("a", "1"),)): 500.0, ("n", (("a", "2"),)): 1.0}
    assert grown(before, {("n", (("a", "1"),)): 7.0, ("n", (("a", "2"),)): 4.0}, "n") == 3


def test_the_times_are_those_between_two_readings() -> None:
    before = histogram((10, 0, 0, 5), sum_s=500.0)
    after = histogram((10, 100, 100, 5), sum_s=520.0)
    found = times(before, after, NAME, api="Produce")
    assert found == Times(200, pytest.approx(100.0), pytest.approx(100.0), pytest.approx(982.0))
    assert times(after, after, NAME) is None
    assert times(before, after, NAME, api="Fetch") is None
    assert times({}, {}, NAME) is None


def test_times_of_several_processes_and_apis_are_joined() -> None:
    after = histogram((10, 0, 0, 0)) | histogram((0, 0, 30, 0), FETCH, 15.0)
    found = times({}, after, NAME)
    assert found is not None and found.count == 40
    assert found.p50_ms > 100


def test_times_are_never_negative_although_one_of_the_processes_restarted() -> None:
    before = histogram((1_000, 0, 0, 0)) | histogram((0, 0, 0, 0), FETCH)
    after = histogram((1, 0, 0, 0)) | histogram((0, 50, 0, 0), FETCH, 2.5)
    found = times(before, after, NAME)
    assert found == Times(50, pytest.approx(50.0), pytest.approx(55.0), pytest.approx(99.1))


def test_a_quantile_above_the_last_finite_end_is_that_end() -> None:
    assert quantile({0.1: 1.0, math.inf: 100.0}, 0.99) == 0.1
    assert quantile({math.inf: 5.0}, 0.5) == 0.0
    assert quantile({}, 0.5) == 0.0


@given(
    st.lists(st.tuples(st.floats(0.001, 100), st.integers(0, 1_000)), min_size=1, max_size=8, unique_by=lambda x: x[0]),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_a_quantile_is_in_the_bucket_of_its_rank_and_grows_with_its_share(
    sizes: list[tuple[float, int]], first: float, second: float
) -> None:
    buckets: dict[float, float] = {}
    below = 0
    for end, count in sorted(sizes):
        below += count
        buckets[end] = below
    buckets[math.inf] = below
    low, high = (quantile(buckets, share) for share in sorted((first, second)))
    assert 0 <= low <= high + 1e-9
    assert high <= max(end for end, _ in sizes)
    ends = [0.0, *sorted(end for end, _ in sizes)]
    bucket = next(index for index, end in enumerate(ends) if index and buckets[end] >= below * max(first, second))
    assert ends[bucket - 1] <= high <= ends[bucket]


@given(st.dictionaries(st.sampled_from(PRODUCE + FETCH), st.floats(0, 1e6)), st.floats(0, 1e6), st.floats(0, 1e6))
def test_growth_is_never_negative(before: dict[tuple[str, str], float], now: float, other: float) -> None:
    earlier = {("n", (labels,)): value for labels, value in before.items()}
    after = {("n", PRODUCE): now, ("n", FETCH): other}
    assert 0 <= grown(earlier, after, "n") <= now + other
