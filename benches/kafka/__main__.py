"""`make bench-kafka`: compare Penstock with Apache Kafka, print a table, and write JSON to benches/results."""

import argparse
import functools
import shlex
import signal
import sys
from pathlib import Path
from typing import NoReturn

from benches.kafka.comparison import Row, rows_of, save, table
from benches.kafka.lines import EXPRESS, KAFKA, PENSTOCK, SLOW, SYNCED, all_lines
from benches.kafka.measuring import Starter, measure
from benches.kafka.systems.apache import apache
from benches.kafka.systems.penstock import penstock
from benches.kafka.workloads.target import Span
from benches.report import RESULTS

FULL, QUICK = Span(warm_up_s=3, window_s=6), Span(warm_up_s=2, window_s=5)
RUNS = 3


def main() -> int:
    """Run the chosen lines and print the table; a missed goal is not an error."""
    lines = all_lines()
    parser = argparse.ArgumentParser(prog="benches.kafka")
    parser.add_argument("--line", action="append", choices=list(lines), metavar="NAME", help="only these lines")
    parser.add_argument("--group", action="append", choices={each.group for each in lines.values()}, metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the names of the lines, and end")
    parser.add_argument("--runs", type=int, help=f"runs on each system ({RUNS}, or 1 with --quick)")
    parser.add_argument(
        "--quick", action="store_true", help=f"one run of {QUICK.window_s:g} s on each system, else {FULL.window_s:g} s"
    )
    parser.add_argument("--systems", default="penstock,kafka", help="one or both (%(default)s)")
    parser.add_argument("--up", default="", metavar="ARGUMENTS", help="more arguments for `penstock up`")
    parser.add_argument("--keep", metavar="FILE", type=Path, help="also put the results into FILE")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{line.name:22}{line.title}" for line in lines.values()))
        return 0
    names = arguments.line or [] if arguments.line or arguments.group else list(lines)
    names += [line.name for line in lines.values() if line.group in (arguments.group or [])]
    signal.signal(signal.SIGTERM, _end)  # so that everything that was started is stopped
    rows: list[Row] = []
    runs, span = (arguments.runs or 1, QUICK) if arguments.quick else (arguments.runs or RUNS, FULL)
    systems = _starters(arguments.systems.split(","), shlex.split(arguments.up))
    try:
        for measured in measure([lines[name] for name in lines if name in names], systems, runs=runs, span=span):
            rows += rows_of(measured)
    finally:
        print(table(rows))
        for path in (RESULTS / "kafka.json", arguments.keep):
            if path is not None and rows:
                save(rows, path)
    return 0


def _starters(sides: list[str], up: list[str]) -> dict[str, Starter]:
    """How each system of the chosen sides is started."""
    starters: dict[str, Starter] = {}
    if "penstock" in sides:
        starters |= {
            PENSTOCK: functools.partial(penstock, up),
            SLOW: functools.partial(penstock, up, is_slow=True),
            EXPRESS: functools.partial(penstock, up, is_slow=True, is_express=True),
        }
    if "kafka" in sides:
        starters |= {KAFKA: apache, SYNCED: functools.partial(apache, is_synced=True)}
    return starters


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
