"""The compatibility page lists exactly what the code serves, with the results of conformance runs."""

import re
from typing import Any

import pytest

from penstock.contracts.configs.topics import TOPIC_CONFIGS
from penstock.kafkawire.api import API_TABLE
from tests.testkit.docs.__main__ import DOCS
from tests.testkit.docs.blocks import fill
from tests.testkit.docs.compatibility import COMPOSED, makers, read_results
from tests.testkit.docs.other_apis import REASONS, kafka_apis, unserved

TEXT = (DOCS / "kafka-compatibility.md").read_text()
RESULTS: dict[str, Any] = {
    "scenarios": [
        {"name": "produce-gzip", "area": "producing", "promise": "What was compressed comes back."},
        {"name": "group-join", "area": "groups", "promise": "Members share the partitions."},
        {"name": "group-static", "area": "groups", "promise": "Static members come back."},
        {"name": "login-plain", "area": "logins", "promise": "A password is checked."},
        {"name": "login-certificate", "area": "logins", "promise": "A certificate is checked."},
    ],
    "clients": [
        {
            "client": "kcat",
            "version": "1.7",
            "library": "librdkafka 2.0",
            "results": {
                "produce-gzip": {"outcome": "passed", "detail": ""},
                "group-join": {"outcome": "failed", "detail": "no | answer"},
                "group-static": {"outcome": "not offered", "detail": ""},
                "login-plain": {"outcome": "passed", "detail": ""},
                "login-certificate": {"outcome": "not offered", "detail": ""},
            },
        },
        {
            "client": "other",
            "version": "2",
            "library": "",
            "results": {
                "login-plain": {"outcome": "failed", "detail": ""},
                "login-certificate": {"outcome": "passed", "detail": ""},
            },
        },
    ],
}


def test_the_tables_of_the_page_are_current() -> None:
    assert fill(TEXT, makers(read_results(), read_results(COMPOSED))) == TEXT, "run `make docs`"


def test_the_page_lists_every_api_with_the_versions_that_are_served() -> None:
    listed = {
        int(key): (name, int(low), int(high))
        for key, name, low, high in re.findall(
            r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \| \d+-\d+ \| .+ \|$", TEXT, re.MULTILINE
        )
    }
    assert listed == {key: (api.name, api.min_version, api.max_version) for key, api in API_TABLE.items()}


def test_the_page_gives_a_reason_for_every_other_api_of_kafka() -> None:
    keys = {api.key for api in kafka_apis()}
    assert keys == set(range(95)) - {4, 5, 6, 7}
    assert {api.key for api in unserved()} == set(REASONS) == keys - set(API_TABLE)


def test_the_names_and_first_versions_are_those_of_kafka() -> None:
    ours = {key: (api.name, api.min_version) for key, api in API_TABLE.items()}
    theirs = {api.key: (api.name, int(api.versions.split("-")[0])) for api in kafka_apis() if api.key in API_TABLE}
    assert ours == theirs | {0: ("Produce", 0)}  # advertised for older librdkafka, and rejected


def test_the_page_lists_every_topic_configuration_with_its_default() -> None:
    listed = re.findall(r"^\| `([a-z0-9.]+)` \| `([^`]*)` \|", TEXT, re.MULTILINE)
    assert {(name, config.default) for name, config in TOPIC_CONFIGS.items()} <= set(listed)


def test_what_clients_have_shown_is_counted_and_what_they_have_not_is_named() -> None:
    made = fill("<!-- made: clients -->\nold\n<!-- made: end -->\n", makers(RESULTS))
    assert "| client | producing | groups |" in made
    assert "| kcat 1.7 (librdkafka 2.0) | 1 of 1 | 0 of 1 |" in made
    assert "- kcat, failed: `group-join` (no | answer)" in made
    assert "- kcat, not offered: `group-static`" in made
    assert "old" not in made


def test_logins_have_a_table_of_clients_and_mechanisms() -> None:
    made = fill("<!-- made: logins -->\nold\n<!-- made: end -->\n", makers(RESULTS))
    assert "| client | PLAIN | certificate (mTLS) |" in made
    assert "| kcat 1.7 (librdkafka 2.0) | yes | not offered |" in made
    assert "| other 2 | **no** | yes |" in made
    assert "| `login-plain` | A password is checked. |" in made
    others = fill("<!-- made: clients -->\nold\n<!-- made: end -->\n", makers(RESULTS))
    assert "login" not in others
    assert "other" not in others


def test_logins_in_containers_have_a_table_with_the_other_scenarios_beside_them() -> None:
    made = fill("<!-- made: composed_logins -->\nold\n<!-- made: end -->\n", makers(None, RESULTS))
    assert "| client | `produce-gzip` | `group-join` | `group-static` | PLAIN | certificate (mTLS) |" in made
    assert "| other 2 |  |  |  | **no** | yes |" in made


def test_a_table_that_nobody_makes_is_no_table_of_the_page() -> None:
    with pytest.raises(LookupError):
        fill("<!-- made: wishes -->\n<!-- made: end -->\n", makers(None))
