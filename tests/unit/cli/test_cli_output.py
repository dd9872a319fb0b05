"""The forms of results: aligned text, JSON and YAML have the same values."""

import json

import pytest
import yaml

from penstock.cli.output import Done, Listing, Report, as_text, cell, duration_text, size_text, time_text

ROWS = [
    {"name": "orders", "partition": 0, "latest_offset": 1_234_567, "records": 1_234_567, "size_bytes": 3 * 2**20},
    {"name": "a", "partition": 12, "latest_offset": 5, "records": 5, "size_bytes": 10},
]


def test_a_listing_is_aligned_with_numbers_on_the_right() -> None:
    assert as_text(Listing(ROWS, ""), "table").splitlines() == [
        "NAME    PARTITION  LATEST OFFSET    RECORDS     SIZE",
        "orders          0        1234567  1,234,567  3.0 MiB",
        "a              12              5          5     10 B",
    ]


def test_scripts_get_the_values_as_they_are() -> None:
    assert json.loads(as_text(Listing(ROWS, ""), "json")) == ROWS
    assert yaml.safe_load(as_text(Listing(ROWS, ""), "yaml")) == ROWS


def test_an_empty_listing_is_a_sentence_for_people_and_a_list_for_scripts() -> None:
    empty = Listing([], "there are no topics")
    assert [as_text(empty, form) for form in ("table", "json", "yaml")] == ["there are no topics", "[]", "[]"]


def test_a_report_has_its_tables_below_its_facts() -> None:
    report = Report({"name": "orders", "partition_count": 2, "members": [], "partitions": [{"partition": 0}]})
    lines = ["name             orders", "partition count  2", "", "partitions:", "PARTITION", "        0"]
    assert as_text(report, "table").splitlines() == lines
    assert json.loads(as_text(report, "json"))["members"] == []


def test_a_done_command_prints_a_sentence_or_facts() -> None:
    done = Done("2 records written", {"records": 2})
    assert (as_text(done, "table"), as_text(done, "json")) == ("2 records written", '{"records": 2}')


def test_no_text_of_a_client_changes_the_terminal() -> None:
    assert cell("name", "a\x1b[31m\nb") == "a?[31m?b"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("value", None, "-"),
        ("value", "", "-"),
        ("ready", True, "yes"),
        ("ready", False, "no"),
        ("partitions", ["a/0", "b/1"], "a/0, b/1"),
        ("partitions", [], "-"),
        ("producer_id", 123_456, "123456"),
        ("share", 0.25, "0.2"),
        ("mean_ms", 1_234.56, "1,234.6 ms"),
        ("commit_ms", 12, "12 ms"),
    ],
)
def test_a_cell_fits_its_value(name: str, value: object, text: str) -> None:
    assert cell(name, value) == text


def test_sizes_and_durations_have_the_largest_fitting_units() -> None:
    assert [size_text(size) for size in (0, 1_023, 1_024, 1_536, 2**40, 2**60)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 TiB", "1024.0 PiB")
    ]
    assert [duration_text(each) for each in (0, 0.25, 59, 60, 3_725, 90_000, 864_000)] == [
        *("0 s", "0.2 s", "59 s", "1 min", "1 h 2 min", "1 d 1 h", "10 d")
    ]


def test_times_are_in_utc() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert (time_text(-1), time_text(2**62)) == ("", "never")
