"""The listing of segments that may be merged: read whole seldom, and read at its end often."""

from collections.abc import Sequence

import pytest

from penstock.contracts.errors import Invalid
from penstock.contracts.queries.compaction import SegmentsView, SegmentView
from penstock_compactor.config import CompactorConfig, spark_settings
from penstock_compactor.planning.listing import FULL_INTERVAL_S, Listing

FULL_BYTES = 1000


def segment(row: int, level: int = 0, size: int = 10, dead_since_ms: int = -1) -> SegmentView:
    return SegmentView(row, row.to_bytes(16, "big"), level, size, size, 1, dead_since_ms, False)


def list_table(listing: Listing, table: Sequence[SegmentView], now_s: float, page: int = 3) -> int:
    """List a table once, by pages; return the first row that was listed."""
    first = row = listing.begin(now_s)
    while row >= 0:
        end = row + page
        found = [each for each in table if row <= each.row < end]
        row = listing.record(row, SegmentsView(1, 77, found, end if end < len(table) else -1))
    return first


def rows(listing: Listing) -> list[int]:
    return [each.row for each in listing.segments]


def test_the_first_listing_finds_all_segments_that_may_be_merged() -> None:
    listing = Listing(FULL_BYTES)
    table = [segment(0), segment(1, 2, FULL_BYTES), segment(2, 1), segment(3, 0, FULL_BYTES), segment(4, 0, 10, 5)]
    assert list_table(listing, table, 0.0) == 0
    assert rows(listing) == [0, 2, 3]
    assert listing.clock_ms == 77


def test_later_listings_begin_at_the_oldest_flushed_segment_or_after_all() -> None:
    listing = Listing(FULL_BYTES)
    table = [segment(row, level=1) for row in range(5)]
    list_table(listing, table, 0.0)
    assert list_table(listing, table, 1.0) == 5
    table += [segment(5), segment(6, 1)]
    assert list_table(listing, table, 2.0) == 5
    assert rows(listing) == [0, 1, 2, 3, 4, 5, 6]
    assert list_table(listing, table, 3.0) == 5, "one flushed segment waits there"


def test_a_listing_removes_missing_segments_of_the_listed_rows_only() -> None:
    listing = Listing(FULL_BYTES)
    list_table(listing, [segment(row, 1 if row < 3 else 0) for row in range(7)], 0.0)
    table = [segment(row, 0, 10, 5) for row in range(7)]
    list_table(listing, table, 1.0)
    assert rows(listing) == [0, 1, 2]
    assert list_table(listing, table, FULL_INTERVAL_S) == 0
    assert rows(listing) == []


def test_removed_segments_return_when_they_are_listed_again() -> None:
    listing = Listing(FULL_BYTES)
    table = [segment(row) for row in range(3)]
    list_table(listing, table, 0.0)
    listing.remove([table[1].segment_id])
    assert rows(listing) == [0, 2]
    list_table(listing, table, 1.0)
    assert rows(listing) == [0, 1, 2]


def test_settings_for_spark_are_passed_on() -> None:
    config = CompactorConfig(spark_conf=" spark.executor.memory=2g; spark.jars=a.jar,b.jar;; spark.x=y=z")
    assert spark_settings(config) == {
        "spark.executor.memory": "2g",
        "spark.jars": "a.jar,b.jar",
        "spark.x": "y=z",
    }


@pytest.mark.parametrize("conf", ["spark.executor.memory", "executor.memory=2g", "="])
def test_settings_that_are_not_for_spark_are_rejected(conf: str) -> None:
    with pytest.raises(Invalid, match=r"spark conf must be spark\.key=value"):
        CompactorConfig(spark_conf=conf)
