"""The blocks of docs/suites.md: results of `make suites` beside Kafka's, and the causes of failures."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.suites.results import KAFKA, PENSTOCK, count, failures
from tests.suites.suites.suite import FAILED, PASSED, SKIPPED
from tests.testkit.docs.blocks import Maker, table

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "suites.json"  # `make suites` writes it
CAUSES = ROOT / "tests" / "suites" / "causes.toml"
NOTHING_KEPT = "No run has been kept yet."
UNKNOWN = "not known yet"
TITLES = {PENSTOCK: "Penstock", KAFKA: "Kafka"}
OUTCOMES = (PASSED, FAILED, SKIPPED)

Causes = Mapping[str, Mapping[str, str]]  # by suite and test


def makers(suites: list[dict[str, Any]], causes: Causes) -> dict[str, Maker]:
    """The makers of the page's blocks."""
    return {
        "suites": lambda: _totals(suites),
        "suite_failures": lambda: _failures(suites, causes),
        "suite_failures_of_kafka": lambda: _kafka_failures(suites),
    }


def read_results() -> list[dict[str, Any]]:
    """The kept results of each suite."""
    return json.loads(RESULTS.read_text())["suites"] if RESULTS.exists() else []


def read_causes() -> Causes:
    """The causes of failures, written by hand."""
    return tomllib.loads(CAUSES.read_text())


def _totals(suites: list[dict[str, Any]]) -> list[str]:
    if not suites:
        return [NOTHING_KEPT]
    rows = [
        [f"`{each['name']}`", each["project"], TITLES[brokers], *_counts(each["tests"], brokers)]
        for each in suites
        for brokers in (PENSTOCK, KAFKA)
        if any(brokers in test for test in each["tests"].values())
    ]
    return table(["suite", "project", "brokers", *OUTCOMES], rows)


def _counts(tests: dict[str, Any], brokers: str) -> list[str]:
    return [str(count(tests, brokers, outcome)) for outcome in OUTCOMES]


def _failures(suites: list[dict[str, Any]], causes: Causes) -> list[str]:
    rows = [
        [f"`{each['name']}`", f"`{test}`", causes.get(each["name"], {}).get(test, UNKNOWN)]
        for each in suites
        for test in failures(each["tests"])[0]
    ]
    return table(["suite", "test", "cause"], rows) if rows else ["None."]


def _kafka_failures(suites: list[dict[str, Any]]) -> list[str]:
    rows = []
    for each in suites:
        _, shared = failures(each["tests"])
        failed = [name for name, test in each["tests"].items() if test.get(KAFKA, {}).get("outcome") == FAILED]
        rows += [[f"`{each['name']}`", f"`{name}`", "fails" if name in shared else "passes"] for name in failed]
    return table(["suite", "test", "at Penstock"], rows) if rows else ["None."]
