"""The results of `make suites`: printed as a table, and kept in docs/suites.json for the page docs/suites.md."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.suites.suites.suite import FAILED, PASSED, SKIPPED, Suite

PENSTOCK, KAFKA = "penstock", "kafka"
DETAIL_CHARACTERS_MAX = 160
# Results by suite, test and brokers, as the file has them.
Tests = dict[str, dict[str, Any]]


class Result(NamedTuple):
    """How one test or subtest ended at one kind of brokers."""

    suite: str
    test: str
    brokers: str
    outcome: str
    detail: str
    took_s: float


def read(path: Path | None) -> dict[str, Any]:
    """The kept results by suite; nothing without a file."""
    if path is None or not path.exists():
        return {}
    return {each["name"]: each for each in json.loads(path.read_text())["suites"]}


def merged(kept: dict[str, Any], suites: Sequence[Suite], results: Iterable[Result]) -> dict[str, Any]:
    """The kept results, with those of this run in place of earlier ones."""
    for suite in suites:
        kept.setdefault(suite.name, {"tests": {}})
        kept[suite.name] = {"name": suite.name, "project": suite.project, "tests": kept[suite.name]["tests"]}
    for result in results:
        tests: Tests = kept[result.suite]["tests"]
        detail = "" if result.outcome == PASSED else short(result.detail)
        tests.setdefault(result.test, {})[result.brokers] = {"outcome": result.outcome, "detail": detail}
    return kept


def save(path: Path, merged_results: dict[str, Any], order: Sequence[str]) -> None:
    """Write all results, in the order of suites."""
    suites = [merged_results[name] for name in order if name in merged_results]
    for suite in suites:
        suite["tests"] = dict(sorted(suite["tests"].items()))
    path.write_text(json.dumps({"suites": suites}, indent=1) + "\n")


def count(tests: Tests, brokers: str, outcome: str) -> int:
    """The number of tests that ended so at these brokers."""
    return sum(each.get(brokers, {}).get("outcome") == outcome for each in tests.values())


def failures(tests: Tests) -> tuple[list[str], list[str]]:
    """The tests that fail at Penstock alone, and those that fail at Kafka, too."""
    failed = [name for name, each in sorted(tests.items()) if _failed(each, PENSTOCK)]
    shared = [name for name in failed if _failed(tests[name], KAFKA)]
    return [name for name in failed if name not in shared], shared


def _failed(test: dict[str, Any], brokers: str) -> bool:
    return bool(test.get(brokers, {}).get("outcome") == FAILED)


def table(all_results: dict[str, Any], names: Iterable[str]) -> str:
    """A row for each suite and kind of brokers, and a line for each failure."""
    lines = [f"{'suite':24} {'brokers':10} {'passed':>7} {'failed':>7} {'skipped':>8}"]
    listed = []
    for name in names:
        tests = all_results[name]["tests"]
        for brokers in (PENSTOCK, KAFKA):
            passed, failed, skipped = (count(tests, brokers, each) for each in (PASSED, FAILED, SKIPPED))
            lines.append(f"{name:24} {brokers:10} {passed:7} {failed:7} {skipped:8}")
        own, shared = failures(tests)
        listed += [f"FAILED: {name}: {each}: {tests[each][PENSTOCK]['detail']}" for each in own]
        listed += [f"FAILED, with Kafka too: {name}: {each}" for each in shared]
    return "\n".join([*lines, "", *listed])


def short(detail: str) -> str:
    """The start of the first line."""
    return (detail.strip().splitlines() or [""])[0][:DETAIL_CHARACTERS_MAX].strip()
