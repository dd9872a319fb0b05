"""The forms of a command's result: text for people, JSON or YAML for scripts.

The values are the same in all forms. In text a name's end decides how a number looks: `_bytes` is a size, `_seconds`
and `_ms` are durations. Other numbers have separators, except offsets, ids and the like, which people copy.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

FORMS = ("table", "json", "yaml")
Row = Mapping[str, Any]
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LAST_MS = 253_402_300_799_000  # the end of the year 9999, after which dates have no text
_PLAIN_ENDS = ("offset", "id", "partition", "leader", "epoch", "port", "sequence", "replicas")
_BAD_STATES = frozenset({"dead", "error", "no"})
_GOOD_STATES = frozenset({"stable", "ok", "yes"})


class Listing(msgspec.Struct, frozen=True):
    """Rows of equal keys, in order. In text an empty list is the sentence `nothing`."""

    rows: Sequence[Row]
    nothing: str
    is_failure: bool = False  # the command ends with code 1, because the rows show a problem


class Report(msgspec.Struct, frozen=True):
    """Facts by name. A fact that is a list of mappings is a table in text."""

    facts: Mapping[str, Any]


class Done(msgspec.Struct, frozen=True):
    """The work that a command has done: a sentence for people, and facts for scripts."""

    text: str
    facts: Mapping[str, Any]


Result = Listing | Report | Done


def add_output_flag(parser: argparse.ArgumentParser, forms: Sequence[str] = FORMS) -> None:
    """Add the flag for the form of the result; the first form is the default."""
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help="form of the result (%(default)s)")


def show(result: Result, form: str) -> int:
    """Print the result, with colours on a terminal, and return the exit code."""
    if form == "table" and sys.stdout.isatty():
        _show_on_terminal(result)
    else:
        print(as_text(result, form))
    return int(isinstance(result, Listing) and result.is_failure)


def as_text(result: Result, form: str) -> str:
    """The result without colours."""
    if form == "json":
        return json.dumps(_values(result), ensure_ascii=False, default=str)
    if form == "yaml":
        import yaml

        return str(yaml.safe_dump(_values(result), sort_keys=False, allow_unicode=True)).rstrip("\n")
    match result:
        case Listing():
            return _aligned(result.rows) if result.rows else result.nothing
        case Report():
            return "\n".join(_report_lines(result.facts))
        case Done():
            return result.text


def _values(result: Result) -> Any:
    return [dict(row) for row in result.rows] if isinstance(result, Listing) else dict(result.facts)


def _report_lines(facts: Mapping[str, Any]) -> list[str]:
    plain, tables = _parted(facts)
    width = max(map(len, plain), default=0)
    lines = [f"{_title(name):{width}}  {cell(name, value)}".rstrip() for name, value in plain.items()]
    for name, rows in tables.items():
        lines += ["", f"{_title(name)}:", _aligned(rows)]
    return lines


def _parted(facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Sequence[Row]]]:
    """The plain facts, and the tables that are not empty."""
    tables = {name: value for name, value in facts.items() if _is_table(value)}
    plain = {name: value for name, value in facts.items() if name not in tables and value != []}
    return plain, tables


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _aligned(rows: Sequence[Row]) -> str:
    names = list(rows[0])
    lines = [[heading(name) for name in names], *([cell(name, row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    numbers = [_is_number_column(name, rows) for name in names]
    return "\n".join(
        "  ".join(
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(line, widths, numbers, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number_column(name: str, rows: Sequence[Row]) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def heading(name: str) -> str:
    """The heading of a column: its name without the unit that each cell shows."""
    return _title(name).upper()


def _title(name: str) -> str:
    return name.removesuffix("_bytes").removesuffix("_seconds").removesuffix("_ms").replace("_", " ")


def cell(name: str, value: Any) -> str:
    """A value for people. A text from clients cannot change the terminal."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(cell(name, each) for each in value) or "-"
        case Mapping():
            return ", ".join(f"{key}={cell('', each)}" for key, each in value.items()) or "-"
        case int() | float() if name.endswith("_bytes"):
            return size_text(int(value))
        case int() | float() if name.endswith("_seconds"):
            return duration_text(value)
        case int() | float() if name.endswith("_ms"):
            return f"{value:,.1f} ms" if isinstance(value, float) else f"{value:,} ms"
        case int() if name.endswith(_PLAIN_ENDS):
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))


def size_text(size_bytes: int) -> str:
    """A size with a binary unit: `1.5 MiB`."""
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1_024 or unit == _UNITS[-1]:
            break
        size /= 1_024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """A duration with its two largest units: `3 d 4 h`; below a minute in seconds."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != int(seconds) else f"{int(seconds)} s"
    whole = int(seconds)
    parts = [("d", whole // 86_400), ("h", whole // 3_600 % 24), ("min", whole // 60 % 60), ("s", whole % 60)]
    first = next(index for index, (_, count) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for unit, count in parts[first : first + 2] if count)


def time_text(time_ms: int) -> str:
    """A time in UTC with milliseconds; "" if it is unknown, `never` after the year 9999."""
    if time_ms < 0:
        return ""
    if time_ms > _LAST_MS:
        return "never"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show_on_terminal(result: Result) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    match result:
        case Listing() if result.rows:
            console.print(_rich_table(result.rows))
        case Report():
            plain, tables = _parted(result.facts)
            width = max(map(len, plain), default=0)
            for name, value in plain.items():
                console.print(Text(f"{_title(name):{width}}  ", "bold"), _styled(name, value), sep="")
            for name, rows in tables.items():
                console.print(Text(f"\n{_title(name)}:", "bold"))
                console.print(_rich_table(rows))
        case _:
            print(as_text(result, "table"))


def _rich_table(rows: Sequence[Row]) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold cyan", pad_edge=False)
    for name in rows[0]:
        table.add_column(heading(name), justify="right" if _is_number_column(name, rows) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_styled(name, value) for name, value in row.items()))
    return table


def _styled(name: str, value: Any) -> Any:
    from rich.text import Text

    text = cell(name, value)
    word = text.lower()
    return Text(text, "green" if word in _GOOD_STATES else "red" if word in _BAD_STATES else "")
