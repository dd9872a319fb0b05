"""The tables of docs/kafka-compatibility.md: APIs that the code serves, and results of conformance runs."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from penstock.contracts.configs.brokers import INERT_BROKER_CONFIGS
from penstock.contracts.configs.client_metrics import CLIENT_METRICS_CONFIGS
from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS
from penstock.contracts.configs.quotas import QUOTAS
from penstock.contracts.configs.topics import CLUSTER_CONFIGS, TOPIC_CONFIGS
from penstock.contracts.configs.unsupported_topics import INERT_CONFIGS, REJECTED_CONFIGS
from penstock.kafkawire.api import API_TABLE, SHARE_GROUP_APIS
from penstock_gateway.handlers import Handler, all_handlers
from tests.testkit.docs.blocks import Maker, table
from tests.testkit.docs.other_apis import REASONS, kafka_apis, unserved
from tests.testkit.prose import MARKDOWN_LINE_MAX

DOCS = Path(__file__).parents[3] / "docs"
RESULTS = DOCS / "conformance.json"  # `make conformance` writes it
COMPOSED = DOCS / "conformance-compose.json"  # `make conformance-compose` writes it
AREAS = ("producing", "consuming", "groups", "transactions", "administration", "tools")
LOGINS = "logins"  # the area with a table of its own
NOTHING_KEPT = "No run has been kept yet."
WORDS = {"passed": "yes", "not offered": "not offered", "failed": "**no**", "not run": "not run"}


def makers(results: dict[str, Any] | None, composed: dict[str, Any] | None = None) -> dict[str, Maker]:
    """The makers of the page's blocks; `composed` are the results at the containers of docker compose."""
    return {
        "apis": _apis,
        "unserved_apis": _unserved_apis,
        "clients": lambda: _clients(results),
        "logins": lambda: _logins(results),
        "composed_logins": lambda: _composed_logins(composed),
        "topic_configs": _topic_configs,
        "inert_configs": _inert_configs,
        "refused_configs": _rejected_configs,
        "cluster_configs": _cluster_configs,
        "broker_configs": _broker_configs,
        "group_configs": _group_configs,
        "client_metrics_configs": _client_metrics_configs,
        "quotas": _quotas,
    }


def read_results(path: Path = RESULTS) -> dict[str, Any] | None:
    """The results of the last conformance run that was kept; None without one."""
    if not path.exists():
        return None
    results: dict[str, Any] = json.loads(path.read_text())
    return results


def _apis() -> list[str]:
    handlers = all_handlers()
    theirs = {api.key: api.versions for api in kafka_apis()}
    rows = [
        [str(key), api.name, f"{api.min_version}-{api.max_version}", theirs[key], _purpose(key, handlers[key])]
        for key, api in API_TABLE.items()
    ]
    return table(["key", "API", "versions", "Kafka 4.4", "here"], sorted(rows, key=lambda row: int(row[0])))


def _unserved_apis() -> list[str]:
    rows = [[str(api.key), api.name, api.versions, api.servers, REASONS[api.key]] for api in unserved()]
    return table(["key", "API", "Kafka 4.4", "served in Kafka by", "why it does not exist here"], rows)


def _purpose(key: int, handler: Handler) -> str:
    """The first sentence in the docstring of the handler's module, after the colon."""
    documentation = sys.modules[handler.__module__].__doc__ or ""
    first = " ".join(documentation.split("\n\n")[0].split())
    sentence = first.partition(": ")[2]
    condition = " Only with `share_groups`." if key in SHARE_GROUP_APIS else ""
    return sentence[:1].upper() + sentence[1:] + condition


def _clients(results: dict[str, Any] | None) -> list[str]:
    if results is None:
        return [NOTHING_KEPT]
    scenarios = [each for each in results["scenarios"] if each["area"] != LOGINS]
    areas = [area for area in AREAS if any(each["area"] == area for each in scenarios)]
    names = {each["name"] for each in scenarios}
    clients = [client for client in results["clients"] if names & client["results"].keys()]
    rows = [[_client(client), *[_cell(client, scenarios, area) for area in areas]] for client in clients]
    lines = table(["client", *areas], rows)
    exceptions = [line for client in clients for line in _exceptions(client, names)]
    lines += ["", "Scenarios that did not pass or are not offered:", "", *exceptions] if exceptions else []
    shown = [[each["area"], f"`{each['name']}`", each["promise"]] for each in scenarios]
    return [*lines, "", "The promise of each scenario:", "", *table(["area", "scenario", "promise"], shown)]


def _logins(results: dict[str, Any] | None) -> list[str]:
    if results is None:
        return [NOTHING_KEPT]
    scenarios = [each for each in results["scenarios"] if each["area"] == LOGINS]
    shown = [[f"`{each['name']}`", each["promise"]] for each in scenarios]
    promises = table(["scenario", "promise"], shown)
    return [*_outcomes_of(results, scenarios), "", "The promise of each column:", "", *promises]


def _composed_logins(results: dict[str, Any] | None) -> list[str]:
    return [NOTHING_KEPT] if results is None else _outcomes_of(results, results["scenarios"])


def _outcomes_of(results: dict[str, Any], scenarios: list[dict[str, Any]]) -> list[str]:
    """A row for each client; a cell is empty if the client is not asked to run the scenario."""
    names = [each["name"] for each in scenarios]
    rows = [
        [_client(client), *[WORDS[given[name]["outcome"]] if name in given else "" for name in names]]
        for client in results["clients"]
        for given in [client["results"]]
    ]
    return table(["client", *[_column(each) for each in scenarios]], rows)


def _column(scenario: dict[str, Any]) -> str:
    """The mechanism of a login; the name of any other scenario."""
    name: str = scenario["name"].removeprefix("login-")
    if scenario["area"] != LOGINS:
        return f"`{name}`"
    return "certificate (mTLS)" if name == "certificate" else name.upper()


def _client(client: dict[str, Any]) -> str:
    library = f" ({client['library']})" if client["library"] else ""
    return f"{client['client']} {client['version']}{library}"


def _outcomes(client: dict[str, Any], scenarios: list[dict[str, Any]], area: str) -> list[str]:
    """Outcomes of the scenarios in an area that this client is asked to run."""
    results = client["results"]
    return [results[each["name"]]["outcome"] for each in scenarios if each["area"] == area and each["name"] in results]


def _cell(client: dict[str, Any], scenarios: list[dict[str, Any]], area: str) -> str:
    """The number that passed, of the number that the client offers; empty if it offers none."""
    offered = [outcome for outcome in _outcomes(client, scenarios, area) if outcome != "not offered"]
    if not offered:
        return ""
    return f"{offered.count('passed')} of {len(offered)}"


def _exceptions(client: dict[str, Any], names: set[str]) -> list[str]:
    lines = []
    results = {name: result for name, result in client["results"].items() if name in names}
    for outcome in ("failed", "not run", "not offered"):
        named = [_named(name, result) for name, result in results.items() if result["outcome"] == outcome]
        if named:
            line = f"- {client['client']}, {outcome}: {', '.join(named)}"
            lines += textwrap.wrap(
                line, MARKDOWN_LINE_MAX, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )
    return lines


def _named(name: str, result: dict[str, Any]) -> str:
    return f"`{name}` ({result['detail']})" if result.get("detail") else f"`{name}`"


def _topic_configs() -> list[str]:
    configs = [config for name, config in sorted(TOPIC_CONFIGS.items()) if name not in INERT_CONFIGS]
    return table(
        ["name", "default", "meaning"],
        [[f"`{each.name}`", f"`{each.default}`", each.documentation] for each in configs],
    )


def _inert_configs() -> list[str]:
    rows = [[f"`{each.name}`", f"`{each.default}`", each.reason] for each in INERT_CONFIGS.values()]
    return table(["name", "default", "why it has no effect"], rows)


def _rejected_configs() -> list[str]:
    return table(["name", "why"], [[f"`{name}`", why] for name, why in REJECTED_CONFIGS.items()])


def _cluster_configs() -> list[str]:
    rows = [[f"`{name}`", f"`{each.default}`", each.documentation] for name, each in sorted(CLUSTER_CONFIGS.items())]
    return table(["name", "default", "meaning"], rows)


def _broker_configs() -> list[str]:
    rows = [[f"`{each.name}`", f"`{each.default}`", each.reason] for each in INERT_BROKER_CONFIGS.values()]
    return table(["name", "Kafka's default", "why it has no effect"], rows)


def _group_configs() -> list[str]:
    rows = [
        [f"`{name}`", f"`{each.default}`", each.documentation] for name, each in sorted(GROUP_RESOURCE_CONFIGS.items())
    ]
    return table(["name", "default", "meaning"], rows)


def _client_metrics_configs() -> list[str]:
    rows = [[f"`{name}`", f"`{each.default}`", each.documentation] for name, each in CLIENT_METRICS_CONFIGS.items()]
    return table(["name", "default", "meaning"], rows)


def _quotas() -> list[str]:
    rows = [[f"`{each.key}`", ", ".join(each.types), each.documentation] for each in QUOTAS.values()]
    return table(["quota", "of", "meaning"], rows)
