"""Extents in columns behave like a plain list of rows, for any appends, drops and replacements."""

from array import array
from itertools import accumulate
from typing import Any

from hypothesis import given, strategies as st

from penstock_sequencer.core.state.extents import BLOCK_ROWS, Extents

Row = tuple[int, int, int, int, int, int]


class Model:
    """The columns, and the plain list that they are compared with."""

    def __init__(self, block_rows: int = BLOCK_ROWS) -> None:
        self.extents = Extents(block_rows)
        self.rows: list[Row] = []
        self.next_offset = 0

    def append(self, count: int, timestamp: int) -> None:
        row = (self.next_offset, self.next_offset + count - 1, 7, 100 * len(self.rows), 100, timestamp)
        self.extents.append(*row)
        self.rows.append(row)
        self.next_offset += count

    def drop(self, count: int) -> None:
        count = min(count, len(self.rows))
        segments, lengths = self.extents.drop_first(count)
        assert list(zip(segments, lengths, strict=True)) == [(row[2], row[4]) for row in self.rows[:count]]
        del self.rows[:count]

    def replace(self, cuts: list[int], timestamps: list[int]) -> None:
        """Replace each span between a pair of cuts by one row."""
        places = sorted({min(cut, len(self.rows)) for cut in cuts})
        spans = list(zip(places[::2], places[1::2], strict=False))
        if not spans:
            return
        head = self.extents.head
        new: list[tuple[int, int, Row]] = [
            (first, end, (self.rows[first][0], self.rows[end - 1][1], 8, 0, 50, timestamp))
            for (first, end), timestamp in zip(spans, timestamps, strict=False)
        ]
        self.extents.replace([(head + first, head + end, row) for first, end, row in new])
        for first, end, row in reversed(new):
            self.rows[first:end] = [row]

    def check(self) -> None:
        columns = self.extents
        places = (columns.base_offsets, columns.last_offsets, columns.segments, columns.positions)
        arrays = (*places, columns.lengths, columns.timestamps, columns.highest)
        found = list(zip(*(column[columns.head :] for column in arrays), strict=True))
        assert [row[:6] for row in found] == self.rows
        assert len(columns) == len(self.rows)
        self.check_offsets()
        self.check_times([row[6] for row in found])

    def check_offsets(self) -> None:
        columns = self.extents
        for offset in range(self.rows[0][0] if self.rows else 0, self.next_offset + 1):
            expected = next((place for place, row in enumerate(self.rows) if row[1] >= offset), len(self.rows))
            assert columns.find_offset(offset) - columns.head == expected

    def check_times(self, highest: list[int]) -> None:
        columns = self.extents
        stamps = [row[5] for row in self.rows]
        assert all(bound >= exact for bound, exact in zip(highest, accumulate(stamps, max), strict=True))
        assert all(
            bound == max(before, stamp) for before, bound, stamp in zip(highest, highest[1:], stamps[1:], strict=False)
        )
        for first in {0, len(stamps) // 3, len(stamps)}:
            later = stamps[first:]
            for timestamp in range(-1, 12):
                expected = next((place for place, each in enumerate(later) if each >= timestamp), len(later))
                assert columns.find_timestamp(timestamp, columns.head + first) - columns.head == first + expected
            latest = later.index(max(later)) if later else 0
            assert columns.find_latest(columns.head + first) - columns.head == first + latest


timestamps = st.integers(0, 3)  # few values, so that the highest one is often dropped
appended = st.tuples(st.just(Model.append), st.integers(1, 3), timestamps)
dropped = st.tuples(st.just(Model.drop), st.integers(0, 3))
replaced = st.tuples(
    st.just(Model.replace),
    st.lists(st.integers(0, 12), min_size=2, max_size=6),
    st.lists(timestamps, min_size=3, max_size=3),
)


@given(
    st.lists(st.one_of(appended, appended, appended, dropped, replaced), max_size=40), st.sampled_from([1, 2, 3, 1_024])
)
def test_rows_are_found_as_in_a_plain_list(steps: list[tuple[object, ...]], block_rows: int) -> None:
    model = Model(block_rows)
    for function, *arguments in steps:
        function(model, *arguments)  # type: ignore[operator]
        model.check()


def test_a_search_by_time_walks_few_rows_after_a_record_from_the_far_future_was_dropped() -> None:
    class Watched(array):  # type: ignore[type-arg]
        looks = 0

        def __getitem__(self, place: Any) -> Any:
            self.looks += 1
            return super().__getitem__(place)

    rows, blocks = 30_000, 30
    columns = Extents()
    columns.append(0, 0, 7, 0, 100, 9_999_999)
    for number in range(1, rows):
        columns.append(number, number, 7, 0, 100, number)
    columns.drop_first(1)
    watched = columns.timestamps = Watched("q", columns.timestamps)
    assert columns.find_timestamp(rows - 5) == rows - 5
    assert columns.find_latest() == rows - 1
    assert columns.find_timestamp(rows + 5) == rows
    assert watched.looks < 3 * (2 * 1_024 + blocks) + 100
    columns.drop_first(rows // 2)
    assert columns.find_timestamp(rows - 5) == columns.end - 5


@given(st.lists(st.one_of(appended, appended, dropped, replaced), max_size=40))
def test_columns_that_were_written_and_read_behave_the_same(steps: list[tuple[object, ...]]) -> None:
    """So does the running maximum, which replicas write into their snapshots."""
    model, other = Model(), Model()
    for function, *arguments in steps:
        function(model, *arguments)  # type: ignore[operator]
        function(other, *arguments)  # type: ignore[operator]
        other.extents = Extents.of_columns(other.extents.columns())
        assert other.extents.columns() == model.extents.columns()


def test_many_dropped_rows_are_cut_off() -> None:
    model = Model()
    for number in range(200):
        model.append(1, number % 7)
    for _ in range(50):
        model.drop(3)
    model.replace([3, 20, 30, 40], [5, 2])
    assert model.extents.end < 200
    model.check()


def test_a_highest_timestamp_that_is_replaced_no_longer_counts() -> None:
    model = Model()
    for timestamp in (3, 1, 2):
        model.append(1, timestamp)
    model.replace([0, 1], [0])
    assert list(model.extents.highest) == [0, 1, 2]
