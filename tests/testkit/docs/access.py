"""The tables of docs/operating/security.md about access control: needs of each API, and the comparison with Kafka."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.kafkawire.api import API_TABLE
from penstock_gateway.security.api_needs import NEEDS, Need
from tests.testkit.docs.blocks import Maker, table

RESULTS = Path(__file__).parents[3] / "docs" / "access.json"  # tests.conformance.access.compare writes it


# The reasons of all kept differences; none of them allows a client more.
REASONS = {
    "DescribeShareGroupOffsets": "the group is no share group: Penstock gives one error, Kafka describes each topic",
    "DeleteShareGroupOffsets": "the group has no state: Penstock gives one error, Kafka answers for each topic",
}


def makers() -> dict[str, Maker]:
    """The makers of the page's blocks."""
    return {"access_needs": _needs, "access_results": lambda: _results(json.loads(RESULTS.read_text()))}


def _needs() -> list[str]:
    rows = [[api.name, "; ".join(map(_text, NEEDS[key])) or "nothing"] for key, api in API_TABLE.items()]
    return table(["API", "needs"], rows)


def _text(need: Need) -> str:
    what = f"{need.operation.name} {need.resource_type.name}"
    return f"{what} ({need.when.rstrip(':')})" if need.when else what


def _results(results: dict[str, Any]) -> Iterable[str]:
    """How many cells are equal for each question; a difference without a known reason is an error."""
    differences = {cell["question"] for cell in results["different"]}
    rows = [
        [question, f"{letters.count('=')} of {len(letters)}", _reason(question) if question in differences else ""]
        for question, letters in results["same"].items()
    ]
    return table(["request", "equal cells", "why others differ"], rows)


def _reason(question: str) -> str:
    return REASONS[question.partition(" ")[0]]
