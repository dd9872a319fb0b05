"""What clients have shown: on the screen, and in the file from which docs/kafka-compatibility.md is made."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.scenario import Scenario

PASSED, FAILED, NOT_OFFERED, NOT_RUN = "passed", "failed", "not offered", "not run"
DETAIL_CHARACTERS_MAX = 300
COLUMN = 13


class Result(NamedTuple):
    """What became of one scenario with one client."""

    client: str
    scenario: str
    outcome: str
    detail: str
    took_s: float


class About(NamedTuple):
    """Which client it was."""

    client: str
    version: str = ""
    library: str = ""


def table(results: list[Result], scenarios: list[Scenario]) -> str:
    """A row for each scenario, a column for each client."""
    clients = list(dict.fromkeys(each.client for each in results))
    found = {(each.client, each.scenario): each.outcome for each in results}
    width = max(len(each.name) for each in scenarios)
    lines = ["  ".join([" " * width, *(f"{client[:COLUMN]:{COLUMN}}" for client in clients)])]
    for scenario in scenarios:
        cells = [f"{found.get((client, scenario.name), ''):{COLUMN}}" for client in clients]
        if any(cell.strip() for cell in cells):
            lines.append("  ".join([f"{scenario.name:{width}}", *cells]))
    return "\n".join(line.rstrip() for line in lines)


def save(path: Path, results: list[Result], about: list[About], asked: dict[str, list[Scenario]]) -> None:
    """Put the results into the file; what it says of clients and scenarios that were not run now stays.

    `asked` has every client there is with all that it is asked to show, in the order in which they are to stand.
    """
    known = {each["client"]: each for each in json.loads(path.read_text())["clients"]} if path.exists() else {}
    for client in about:
        before = known.get(client.client, {}).get("results", {})
        now = {each.scenario: kept(each) for each in results if each.client == client.client}
        known[client.client] = {**client._asdict(), "results": {**before, **now}}
    scenarios = {each.name: each for shows in asked.values() for each in shows}
    content = {
        "scenarios": [{"name": each.name, "area": each.area, "promise": each.promise} for each in scenarios.values()],
        "clients": [in_order(known[name], shows) for name, shows in asked.items() if name in known],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def in_order(client: dict[str, Any], shows: list[Scenario]) -> dict[str, Any]:
    """The client with a result for each scenario that it is asked to show: not run, where there is none yet."""
    results = client["results"]
    not_yet = {"outcome": NOT_RUN, "detail": ""}
    return {**client, "results": {each.name: results.get(each.name, not_yet) for each in shows}}


def kept(result: Result) -> dict[str, str]:
    """What the file says of a result: why, too, where it is not as it should be."""
    detail = short(result.detail) if result.outcome in (FAILED, NOT_RUN) else ""
    return {"outcome": result.outcome, "detail": detail}


def short(detail: str) -> str:
    """The beginning of the first line: what a table has room for, and nothing of the machine."""
    return (detail.splitlines() or [""])[0][:DETAIL_CHARACTERS_MAX]
