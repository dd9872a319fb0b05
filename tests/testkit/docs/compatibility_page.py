"""Makes the tables of docs/kafka-compatibility.md from what the code serves and what conformance runs have shown.

`python -m tests.testkit.compatibility_page` writes them anew, with `--check` it only says whether they are current.
What stands between the comments `made: NAME` and `made: end` is made here, all else is written by hand.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS
from penstock.contracts.configs.quotas import QUOTAS
from penstock.contracts.configs.topics import CLUSTER_CONFIGS, TOPIC_CONFIGS
from penstock.contracts.configs.unsupported_topics import INERT_CONFIGS, REJECTED_CONFIGS
from penstock.kafkawire.api import API_TABLE, SHARE_GROUP_APIS
from penstock_gateway.handlers import Handler, all_handlers

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "kafka-compatibility.md"
RESULTS = DOCS / "conformance.json"  # `make conformance` writes it
AREAS = ("producing", "consuming", "groups", "transactions", "administration", "tools")
BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- made: end -->)", re.DOTALL)


def page_with_tables(page: str, results: dict[str, Any] | None) -> str:
    """The page with all its tables as they should be; `LookupError` for a table that nobody makes."""
    makers: dict[str, Callable[[], list[str]]] = {
        "apis": _apis,
        "clients": lambda: _clients(results),
        "topic_configs": _topic_configs,
        "inert_configs": _inert_configs,
        "refused_configs": _rejected_configs,
        "cluster_configs": _cluster_configs,
        "group_configs": _group_configs,
        "quotas": _quotas,
    }
    return BLOCK.sub(lambda found: found[1] + "".join(f"{line}\n" for line in makers[found[2]]()) + found[3], page)


def read_results() -> dict[str, Any] | None:
    """What the last conformance run that was kept has shown, None before there is one."""
    if not RESULTS.exists():
        return None
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    return results


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *[_row(row) for row in rows]]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _apis() -> list[str]:
    handlers = all_handlers()
    rows = [
        [str(key), api.name, f"{api.min_version}-{api.max_version}", _purpose(key, handlers[key])]
        for key, api in API_TABLE.items()
    ]
    return _table(["key", "API", "versions", "here"], sorted(rows, key=lambda row: int(row[0])))


def _purpose(key: int, handler: Handler) -> str:
    """What the module that answers the API says of it in its first sentence."""
    documentation = sys.modules[handler.__module__].__doc__ or ""
    first = " ".join(documentation.split("\n\n")[0].split())
    said = first.partition(": ")[2]
    condition = " Only with `share_groups`." if key in SHARE_GROUP_APIS else ""
    return said[:1].upper() + said[1:] + condition


def _clients(results: dict[str, Any] | None) -> list[str]:
    if results is None:
        return ["No run of `make conformance` has been kept yet."]
    scenarios = results["scenarios"]
    areas = [area for area in AREAS if any(each["area"] == area for each in scenarios)]
    rows = [[_client(client), *[_cell(client, scenarios, area) for area in areas]] for client in results["clients"]]
    lines = _table(["client", *areas], rows)
    exceptions = [line for client in results["clients"] for line in _exceptions(client)]
    lines += ["", "What did not pass, or is not there:", "", *exceptions] if exceptions else []
    shown = [[each["area"], f"`{each['name']}`", each["promise"]] for each in scenarios]
    return [*lines, "", "What each run shows:", "", *_table(["area", "scenario", "promise"], shown)]


def _client(client: dict[str, Any]) -> str:
    library = f" ({client['library']})" if client["library"] else ""
    return f"{client['client']} {client['version']}{library}"


def _outcomes(client: dict[str, Any], scenarios: list[dict[str, Any]], area: str) -> list[str]:
    """Of the scenarios that the client is asked to show, which are not all there are."""
    results = client["results"]
    return [results[each["name"]]["outcome"] for each in scenarios if each["area"] == area and each["name"] in results]


def _cell(client: dict[str, Any], scenarios: list[dict[str, Any]], area: str) -> str:
    """How many of those passed that the client offers; nothing where it offers none."""
    offered = [outcome for outcome in _outcomes(client, scenarios, area) if outcome != "not offered"]
    if not offered:
        return ""
    return f"{offered.count('passed')} of {len(offered)}"


def _exceptions(client: dict[str, Any]) -> list[str]:
    lines = []
    for outcome in ("failed", "not run", "not offered"):
        named = [_named(name, result) for name, result in client["results"].items() if result["outcome"] == outcome]
        if named:
            lines.append(f"- {client['client']}, {outcome}: {', '.join(named)}")
    return lines


def _named(name: str, result: dict[str, Any]) -> str:
    return f"`{name}` ({result['detail']})" if result.get("detail") else f"`{name}`"


def _topic_configs() -> list[str]:
    configs = [config for name, config in sorted(TOPIC_CONFIGS.items()) if name not in INERT_CONFIGS]
    return _table(
        ["name", "default", "meaning"],
        [[f"`{each.name}`", f"`{each.default}`", each.documentation] for each in configs],
    )


def _inert_configs() -> list[str]:
    rows = [[f"`{each.name}`", f"`{each.default}`", each.reason] for each in INERT_CONFIGS.values()]
    return _table(["name", "default", "why it need not have any"], rows)


def _rejected_configs() -> list[str]:
    return _table(["name", "why"], [[f"`{name}`", why] for name, why in REJECTED_CONFIGS.items()])


def _cluster_configs() -> list[str]:
    rows = [[f"`{name}`", f"`{each.default}`", each.documentation] for name, each in sorted(CLUSTER_CONFIGS.items())]
    return _table(["name", "default", "meaning"], rows)


def _group_configs() -> list[str]:
    rows = [
        [f"`{name}`", f"`{each.default}`", each.documentation] for name, each in sorted(GROUP_RESOURCE_CONFIGS.items())
    ]
    return _table(["name", "default", "meaning"], rows)


def _quotas() -> list[str]:
    rows = [[f"`{each.key}`", ", ".join(each.types), each.documentation] for each in QUOTAS.values()]
    return _table(["quota", "of", "meaning"], rows)


def main() -> int:
    """Write the page, or with `--check` say what is wrong with it."""
    page = PAGE.read_text()
    made = page_with_tables(page, read_results())
    if "--check" in sys.argv[1:]:
        if made != page:
            sys.stderr.write(f"{PAGE.name} is not current: `make docs` makes its tables anew\n")
        return int(made != page)
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
