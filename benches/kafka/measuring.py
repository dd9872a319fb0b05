"""Measures lines: all lines of a group on the same started systems, which take turns."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from benches.kafka.lines import Line
from benches.kafka.loads.load import LoadFailed
from benches.kafka.systems.system import System
from benches.kafka.workloads.target import Span, Target

Figures = dict[str, float]
Starter = Callable[[], contextlib.AbstractContextManager[System]]
SETTLE = Span(warm_up_s=0, window_s=5)  # until a started system is at rest


class LineRuns(msgspec.Struct, frozen=True):
    """The figures of a line from each run that did not fail, by system."""

    line: Line
    figures: Mapping[str, Sequence[Figures]]


def measure(lines: Iterable[Line], starters: Mapping[str, Starter], *, runs: int, span: Span) -> Iterable[LineRuns]:
    """Measure lines in their order; a system without a starter is left out."""
    for _, grouped in groupby(lines, key=lambda line: (line.group, line.pair)):
        members = list(grouped)
        with contextlib.ExitStack() as stack:
            targets = {
                name: Target(stack.enter_context(starters[name]())) for name in members[0].pair if name in starters
            }
            for target in targets.values():
                target.measure(SETTLE)
            for line in members:
                yield LineRuns(line, _take_turns(line, targets, runs, span))


def _take_turns(line: Line, targets: Mapping[str, Target], runs: int, span: Span) -> Mapping[str, Sequence[Figures]]:
    figures: dict[str, list[Figures]] = {name: [] for name in targets}
    for run in range(runs):
        # each second time in the other order, so that none is always measured after the other
        for name in list(targets)[:: -1 if run % 2 else 1]:
            try:
                figures[name].append(line.workload.measure(targets[name], span))
            except LoadFailed as failure:  # the others are measured all the same
                print(f"{line.name}, {name}, run {run + 1} failed: {failure}", file=sys.stderr, flush=True)
            else:
                _report(line, name, run, figures[name][-1])
    return figures


def _report(line: Line, system: str, run: int, figures: Figures) -> None:
    words = ", ".join(
        f"{name} {value:,.3g}" if value < 1000 else f"{name} {value:,.0f}" for name, value in figures.items()
    )
    print(f"{line.name}, {system}, run {run + 1}: {words}", file=sys.stderr, flush=True)
