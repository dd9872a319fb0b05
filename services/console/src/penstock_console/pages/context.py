"""The sources of all pages, and parts that several pages use."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.schemas.decoding import Decoder
from penstock_console.kafka.sessions import KafkaSessions, Login
from penstock_console.survey.polling import Poll
from penstock_console.survey.processes import Reading
from penstock_console.survey.survey import Survey

Row = TypeVar("Row")
ROWS_PER_PAGE = 50
ROWS_PER_PAGE_MAX = 500
ROWS_PER_TABLE = 200  # of partitions


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of pages."""

    cluster: str
    clock: Clock
    sequencers: SequencerClient
    survey: Poll[Survey]
    processes: Poll[Reading]
    kafka: KafkaSessions
    decoder: Decoder | None  # of messages, if there is a schema registry
    may_change: bool
    # The overview does not wait for longer for the numbers of topics and groups: it also shows why they are missing.
    overview_s: float = 2.0


class Request(msgspec.Struct, frozen=True):
    """The user of a page."""

    login: Login


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a list to show: a search text, a column to sort by, `-` before it for descending, and a page."""

    q: str = ""
    sort: str = ""
    page: int = 1
    size: int = ROWS_PER_PAGE


class TableQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a long table in HTML. The API has the whole table."""

    page: int = 1


FIRST = TableQuery()


class Part(msgspec.Struct, Generic[Row], frozen=True):
    """A page of a sorted list."""

    rows: list[Row]
    found: int  # rows that fit the search
    page: int
    pages: int
    sort: str


def part_of(rows: Sequence[Row], query: ListQuery, default_sort: str) -> Part[Row]:
    """One page of the rows, sorted by the column that the query names, or else by the default."""
    sort = query.sort or default_sort
    column = sort.removeprefix("-")
    if rows and column not in getattr(rows[0], "__struct_fields__", ()):
        sort, column = default_sort, default_sort.removeprefix("-")
    ordered = sorted(rows, key=lambda row: _key(getattr(row, column)), reverse=sort.startswith("-"))
    return page_of(ordered, query.page, min(max(query.size, 1), ROWS_PER_PAGE_MAX), sort)


def page_of(rows: Sequence[Row], page: int, size: int = ROWS_PER_TABLE, sort: str = "") -> Part[Row]:
    """One page of the rows, the last one if there are fewer pages."""
    pages = max(-(-len(rows) // size), 1)
    page = min(max(page, 1), pages)
    return Part(list(rows[(page - 1) * size : page * size]), len(rows), page, pages, sort)


def _key(value: object) -> tuple[int, object]:
    """A value to sort by; None comes before all others."""
    return (0, 0) if value is None else (1, value)
