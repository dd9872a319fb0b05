"""The lines and the records of `penstock demo`."""

import itertools

from penstock.cli.demo import Counts, line_of, orders


def test_a_line_shows_the_delays_since_the_last_line() -> None:
    counts = Counts(sent=1_200, received=1_100, delays_ms=[9, 5, 30])
    assert line_of(counts) == "1,200 written, 1,100 read, from record to consumer p50 9 ms, max 30 ms"
    assert line_of(counts) == "1,200 written, 1,100 read, no record arrived in the last second"


def test_orders_are_the_same_in_each_run() -> None:
    first, second = (list(itertools.islice(orders(), 500)) for _ in range(2))
    assert first == second
    assert {order["city"] for order in first} >= {"Oslo", "Lima"} and len({order["customer"] for order in first}) == 100
