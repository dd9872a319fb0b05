"""The lines and the records of `penstock demo`, and the figures of `penstock bench`."""

import itertools

from penstock.cli.loads.bench import BAR_LENGTH_MAX, histogram, quantiles
from penstock.cli.loads.demo import Counts, line_of, orders


def test_a_line_shows_the_delays_since_the_last_line() -> None:
    counts = Counts(sent=1_200, received=1_100, delays_ms=[9, 5, 30])
    assert line_of(counts) == "1,200 written, 1,100 read, from record to consumer p50 9 ms, max 30 ms"
    assert line_of(counts) == "1,200 written, 1,100 read, no record arrived in the last second"


def test_orders_are_the_same_in_each_run() -> None:
    first, second = (list(itertools.islice(orders(), 500)) for _ in range(2))
    assert first == second
    assert {order["city"] for order in first} >= {"Oslo", "Lima"} and len({order["customer"] for order in first}) == 100


def test_quantiles_are_those_of_the_sorted_times() -> None:
    assert quantiles([3, 1, 2]) == {"p50_ms": 2, "p90_ms": 3, "p99_ms": 3, "max_ms": 3}
    assert quantiles([float(number) for number in range(1_000)])["p99_ms"] == 990.0


def test_a_histogram_has_the_bounds_between_the_shortest_and_the_longest_time() -> None:
    assert histogram([1.5, 2.0, 2.1, 30.0, 30.0]) == [
        {"up_to": "2 ms", "count": 2, "share": "#" * BAR_LENGTH_MAX},
        {"up_to": "5 ms", "count": 1, "share": "#" * (BAR_LENGTH_MAX // 2)},
        {"up_to": "10 ms", "count": 0, "share": ""},
        {"up_to": "20 ms", "count": 0, "share": ""},
        {"up_to": "50 ms", "count": 2, "share": "#" * BAR_LENGTH_MAX},
    ]
    assert histogram([20_000.0])[0]["up_to"] == "more" and histogram([]) == []
