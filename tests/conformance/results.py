"""Prints the results of a conformance run, and saves them to the source file of docs/kafka-compatibility.md."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.scenario import Scenario

PASSED, FAILED, NOT_OFFERED, NOT_RUN = "passed", "failed", "not offered", "not run"
DETAIL_CHARACTERS_MAX = 300
COLUMN = 13


class Result(NamedTuple):
    """The outcome of one scenario with one client."""

    client: str
    scenario: str
    outcome: str
    detail: str
    took_s: float


class About(NamedTuple):
    """A client's name and versions."""

    client: str
    version: str = ""
    library: str = ""


def table(results: list[Result], scenarios: list[Scenario]) -> str:
    """A text table with a row for each scenario and a column for each client."""
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
    """Save the results; the file keeps its results of clients and scenarios that were not run now.

    `asked` has all clients with all their scenarios, in the order of the file.
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
    """The client with a result for each of its scenarios; "not run" where there is none yet."""
    results = client["results"]
    not_yet = {"outcome": NOT_RUN, "detail": ""}
    return {**client, "results": {each.name: results.get(each.name, not_yet) for each in shows}}


def kept(result: Result) -> dict[str, str]:
    """A result as the file has it, with the reason if the scenario failed or was not run."""
    detail = short(result.detail) if result.outcome in (FAILED, NOT_RUN) else ""
    return {"outcome": result.outcome, "detail": detail}


def short(detail: str) -> str:
    """The start of the first line, which fits into a table and has no paths of this machine."""
    return (detail.splitlines() or [""])[0][:DETAIL_CHARACTERS_MAX]
