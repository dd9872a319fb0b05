"""Conformance runs with logins: the cluster for them starts only if needed, and drivers get files of their client."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.conformance import __main__
from tests.conformance.catalogue import Catalogue, Client
from tests.conformance.logins import (
    CERTIFICATE,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    Login,
    as_librdkafka,
    as_properties,
    read_login,
    read_settings,
)
from tests.conformance.results import About
from tests.conformance.scenario import Scenario, Stage
from tests.conformance.scenarios.logins import check_reason
from tests.conformance.secured import Secured
from tests.testkit.clusters.cluster import Cluster
from tests.testkit.servers.token_issuer import Issuer, serving, token_url

ALICE = Login("127.0.0.1:1", PLAIN, "ca.pem", "alice", "secret")
SERVICE = ALICE._replace(mechanism=OAUTHBEARER, token_url="http://127.0.0.1:2/token")
LAPTOP = Login("127.0.0.1:1", CERTIFICATE, "ca.pem", certificate="both.pem")
# A client that repeats its arguments, and the variable that Java would read.
DRIVER = """
import os, sys
from tests.conformance.clients.protocol import serve

class Repeating:
    def repeat(self):
        return [sys.argv[1:], os.environ.get("JDK_JAVA_OPTIONS", "")]

serve(Repeating(), {"client": "Repeating", "version": "1", "library": "", "codecs": []})
"""
REPEATING = Client("Repeating", lambda: [sys.executable, "-c", DRIVER], about=lambda stage: About("Repeating"))


class Runs:
    """Conformance runs of one scenario that needs logins, and the clusters that they start."""

    def __init__(self) -> None:
        self.started = 0
        self.seen: list[Secured | None] = []

    @contextmanager
    def open_secured(self, folder: Path) -> Iterator[Secured]:
        self.started += 1
        yield Secured("127.0.0.1:3", folder / "client.properties", {PLAIN: ALICE}, {})

    @contextmanager
    def open_composed(self, folder: Path) -> Iterator[Secured]:
        yield Secured("127.0.0.1:4", folder / "client.properties", {PLAIN: ALICE}, {})

    def run(self, *arguments: str, needs_logins: bool = True) -> int:
        scenario = Scenario("shows", "logins", "It shows.", self._show, needs_logins=needs_logins)
        catalogue = Catalogue([REPEATING], [scenario], lambda client: [scenario], {})
        return __main__.main(
            arguments,
            catalogue=catalogue,
            open_cluster=lambda folder, more: nullcontext(Cluster(folder)),
            open_secured=self.open_secured,
            open_composed=self.open_composed,
        )

    def _show(self, stage: Stage) -> None:
        self.seen.append(stage.secured)


def test_a_cluster_with_logins_starts_only_for_scenarios_that_need_it() -> None:
    runs = Runs()
    assert runs.run(needs_logins=False) == 0
    assert (runs.started, runs.seen) == (0, [None])
    assert runs.run() == 0
    assert runs.started == 1
    assert runs.seen[1] is not None
    assert runs.seen[1].right == {PLAIN: ALICE}


def test_logins_at_containers_need_no_other_cluster(tmp_path: Path) -> None:
    runs = Runs()
    assert runs.run("--compose", "--results", str(tmp_path / "kept.json")) == 0
    assert [each.address for each in runs.seen if each is not None] == ["127.0.0.1:4"]
    assert runs.run("--compose", needs_logins=False) == 1, "nothing was run"
    assert runs.started == 0


def test_scenarios_with_logins_are_left_out_of_runs_on_another_cluster() -> None:
    runs = Runs()
    assert runs.run("--bootstrap", "127.0.0.1:1") == 1, "such a run shows nothing"
    assert (runs.started, runs.seen) == (0, [])


def test_a_driver_gets_the_file_of_its_login_and_java_the_address_of_its_tokens(tmp_path: Path) -> None:
    stage = Stage("127.0.0.1:9", "stage", REPEATING.command(), {}, tmp_path)
    with stage.driver() as driver:
        assert driver.ask("repeat") == [["127.0.0.1:9"], ""]
    with stage.logged_in(SERVICE).driver() as driver:
        (address, path), options = driver.ask("repeat")
    assert (address, read_login([path])) == (SERVICE.address, SERVICE)
    assert options.endswith(f"={SERVICE.token_url}")
    with stage.logged_in(LAPTOP).driver() as driver:
        (_, other), options = driver.ask("repeat")
    assert other != path
    assert options == ""


def test_each_mechanism_has_its_settings() -> None:
    assert 'PlainLoginModule required username="alice" password="secret";' in as_properties(ALICE)
    assert read_settings([]) == {}
    for mechanism in MECHANISMS:
        login = {OAUTHBEARER: SERVICE, CERTIFICATE: LAPTOP}.get(mechanism, ALICE._replace(mechanism=mechanism))
        for text in (as_properties(login), as_librdkafka(login)):
            settings = dict(line.split("=", 1) for line in text.splitlines())
            assert settings["security.protocol"] == ("SSL" if mechanism == CERTIFICATE else "SASL_SSL")
            assert settings.get("sasl.mechanism", CERTIFICATE) == mechanism
            assert ("both.pem" in text, "token" in text) == (mechanism == CERTIFICATE, mechanism == OAUTHBEARER)


def test_a_user_gets_a_token_only_with_its_secret() -> None:
    with serving(Issuer(), {"service-7": "right"}) as keys:
        login = SERVICE._replace(user="service-7", password="right", token_url=token_url(keys))
        header, claims, _ = login.new_token().split(".")
        assert header
        assert claims
        with pytest.raises(OSError, match="401"):
            login._replace(password="wrong").new_token()


@pytest.mark.parametrize(
    ("mechanism", "client", "shown", "is_reason"),
    [
        (PLAIN, "any", "Authentication failed: invalid credentials with SASL mechanism PLAIN", True),
        (PLAIN, "any", "connection at 127.0.0.1:1 closed", False),
        (PLAIN, "aiokafka", "Connection at 127.0.0.1:1 closed", False),
        (OAUTHBEARER, "aiokafka", "Connection at 127.0.0.1:1 closed", True),
        (OAUTHBEARER, "any", '{"status":"invalid_token"}', True),
        (CERTIFICATE, "any", "tlsv1 alert unknown ca", True),
        (CERTIFICATE, "any", "timed out", False),
    ],
)
def test_a_refused_login_must_show_its_reason(mechanism: str, client: str, shown: str, is_reason: bool) -> None:
    if is_reason:
        check_reason(mechanism, shown, client)
    else:
        with pytest.raises(AssertionError):
            check_reason(mechanism, shown, client)


def test_the_file_of_a_login_is_json_by_default() -> None:
    assert json.loads(REPEATING.write_login(ALICE))["user"] == "alice"
