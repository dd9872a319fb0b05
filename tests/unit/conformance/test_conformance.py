"""Conformance runs: no client is skipped silently, and only pinned versions run."""

import hashlib
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.conformance import __main__, provision
from tests.conformance.catalogue import CLIENTS, SCENARIOS, SHORT, Catalogue, Client, scenarios_of
from tests.conformance.driver import ClientError, Driver, NotOffered
from tests.conformance.provision import Missing
from tests.conformance.results import FAILED, NOT_OFFERED, NOT_RUN, PASSED, About, Result, save, table
from tests.conformance.scenario import Scenario, Stage
from tests.conformance.scenarios.groups import PARTITIONS, Members
from tests.conformance.scenarios.transactions import check_exactly_once
from tests.testkit.clusters.cluster import Cluster

NOWHERE = "127.0.0.1:1"
# A client that counts, dies, and cannot dance; what a library prints is no answer.
DRIVER = """
import sys
from tests.conformance.clients.protocol import pausing, serve

class Counting:
    def add(self, one, other):
        print("a library's words")
        return one + other
    def divide(self, one, other):
        return one / other
    def walk(self, hold=None):
        at = pausing(hold)
        at("begun")
        return "walked"
    def die(self):
        sys.exit("the last words")

serve(Counting(), {"client": "Counting", "version": "1", "library": "", "codecs": []})
"""


def command() -> list[str]:
    return [sys.executable, "-c", DRIVER]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(command(), NOWHERE, tmp_path / "log", {})


def show_to(run: object, name: str = "shows") -> Scenario:
    return Scenario(name, "producing", "It shows.", run)  # type: ignore[arg-type]


def run_main(
    clients: list[Client], scenario: Scenario, *arguments: str, short: dict[str, list[str]] | None = None
) -> int:
    catalogue = Catalogue(clients, [scenario], lambda client: [scenario], short or {})
    return __main__.main(arguments, catalogue=catalogue, open_cluster=lambda folder, more: nullcontext(Cluster(folder)))


def missing() -> list[str]:
    raise Missing("there is no nodejs")


def test_a_client_answers_refuses_and_says_what_it_does_not_offer(driver: Driver) -> None:
    try:
        assert driver.hello["client"] == "Counting"
        assert driver.ask("add", one=1, other=2) == 3
        with pytest.raises(ClientError, match="ZeroDivisionError"):
            driver.ask("divide", one=1, other=0)
        with pytest.raises(NotOffered, match="dance"):
            driver.ask("dance")
        assert driver.ask("walk") == "walked"
    finally:
        driver.close()


def test_a_client_holds_at_a_step_until_it_may_go_on(driver: Driver) -> None:
    try:
        driver.ask_until("begun", "walk")
        driver.resume()
        assert driver.answer() == "walked"
    finally:
        driver.close()


def test_the_error_has_the_last_output_of_a_client_that_ends(driver: Driver) -> None:
    try:
        with pytest.raises(ClientError, match="the last words"):
            driver.ask("die")
    finally:
        driver.close()


def test_a_client_that_cannot_be_had_fails_the_run_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main([Client("Absent", missing)], show_to(lambda stage: None)) == 1
    assert "NOT RUN: Absent: there is no nodejs" in capsys.readouterr().err


def test_a_client_that_cannot_be_had_may_be_allowed_to_be_missing_beside_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clients = [Client("Absent", missing), Client("Counting", command)]
    assert run_main(clients, show_to(lambda stage: None), "--allow-missing") == 0
    assert "NOT RUN: Absent" in capsys.readouterr().err


def test_a_scenario_that_fails_fails_the_run() -> None:
    def fails(stage: Stage) -> None:
        with stage.driver() as client:
            assert client.ask("add", one=1, other=1) == 3

    assert run_main([Client("Counting", command)], show_to(fails)) == 1


def test_a_run_closes_with_counts_of_what_passed_failed_and_was_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(stage: Stage) -> None:
        raise AssertionError

    clients = [Client("Absent", missing), Client("Counting", command)]
    run_main(clients, show_to(lambda stage: None), "--allow-missing")
    assert re.fullmatch(r"1 passed, 0 failed, 1 skipped in [0-9.]+s", capsys.readouterr().out.splitlines()[-1])
    assert run_main(clients, show_to(fails), "--allow-missing") == 1
    assert re.fullmatch(r"0 passed, 1 failed, 1 skipped in [0-9.]+s", capsys.readouterr().out.splitlines()[-1])


def test_a_short_run_shows_what_is_named_for_it_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    clients = [Client("Counting", command), Client("Other", command)]
    short = {"Other": ["shows"]}
    assert run_main(clients, show_to(lambda stage: None), "--short", short=short) == 0
    assert "Counting" not in capsys.readouterr().out
    assert run_main(clients, show_to(lambda stage: None, "hides"), "--short", short=short) == 1


def test_what_is_named_for_short_runs_is_there() -> None:
    offered = {client.name: {each.name for each in scenarios_of(client)} for client in CLIENTS}
    assert SHORT.keys() <= offered.keys()
    assert all(set(names) <= offered[client] for client, names in SHORT.items())


def test_what_a_client_does_not_offer_is_no_failure(tmp_path: Path) -> None:
    def dances(stage: Stage) -> None:
        with stage.driver() as client:
            client.ask("dance")

    results = tmp_path / "results.json"
    assert run_main([Client("Counting", command)], show_to(dances), "--results", str(results)) == 0
    (client,) = json.loads(results.read_text())["clients"]
    assert (client["client"], client["version"]) == ("Counting", "1")
    assert client["results"] == {"shows": {"outcome": NOT_OFFERED, "detail": ""}}


def test_what_another_cluster_shows_is_not_kept(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    arguments = ["--bootstrap", NOWHERE, "--results", str(results)]
    with pytest.raises(SystemExit):
        run_main([Client("Counting", command)], show_to(lambda stage: None), *arguments)
    assert not results.exists()


def test_a_run_that_shows_nothing_fails() -> None:
    clients = [Client("Counting", command)]
    assert run_main(clients, show_to(lambda stage: None), "--scenario", "no such") == 1


def test_a_run_of_some_keeps_what_others_have_shown(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    first, second, third = (show_to(None, name) for name in ("first", "second", "third"))
    asked = {"two": [first], "one": [first, second, third]}
    save(path, [Result("one", "first", PASSED, "", 1), Result("one", "second", PASSED, "", 1)], [About("one")], asked)
    save(path, [Result("two", "first", NOT_RUN, "why", 1)], [About("two")], asked)
    save(path, [Result("one", "second", FAILED, "so\nmuch more", 1)], [About("one", "2")], asked)
    kept = json.loads(path.read_text())
    assert [each["name"] for each in kept["scenarios"]] == ["first", "second", "third"]
    two, one = kept["clients"]
    assert one["version"] == "2"
    outcomes = {name: each["outcome"] for name, each in one["results"].items()}
    assert outcomes == {"first": PASSED, "second": FAILED, "third": NOT_RUN}
    assert one["results"]["second"]["detail"] == "so"
    assert two["results"] == {"first": {"outcome": NOT_RUN, "detail": "why"}}


def test_the_table_has_a_column_for_each_client() -> None:
    scenarios = [show_to(None, "first"), show_to(None, "never asked")]
    lines = table([Result("one", "first", PASSED, "", 1), Result("two", "first", FAILED, "", 1)], scenarios).split("\n")
    assert [line.split() for line in lines] == [["one", "two"], ["first", PASSED, FAILED]]


def test_a_jar_with_another_hash_than_the_pinned_one_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "some-1.jar").write_bytes(b"pinned")
    provision.check_hashes(tmp_path, {"group:some:1": hashlib.sha256(b"pinned").hexdigest()})
    (tmp_path / "some-1.jar").write_bytes(b"other")
    with pytest.raises(Missing, match="another hash than the pinned one"):
        provision.check_hashes(tmp_path, {"group:some:1": hashlib.sha256(b"pinned").hexdigest()})
    with pytest.raises(Missing, match="brought no group:more:2"):
        provision.check_hashes(tmp_path, {"group:more:2": ""})


def test_what_was_fetched_once_is_kept_where_the_user_keeps_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fetched = []

    def fetch(folder: Path) -> None:
        fetched.append(folder)
        (folder / "file").write_text("whole")

    first, again = provision.made("some", "version 1", fetch), provision.made("some", "version 1", fetch)
    assert first == again
    assert first.is_relative_to(tmp_path / "penstock" / "conformance")
    assert (first / "file").read_text() == "whole"
    assert provision.made("some", "version 2", fetch) != first
    assert len(fetched) == 2


def test_what_was_fetched_in_part_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fetch(folder: Path) -> None:
        (folder / "file").write_text("half")
        raise Missing("the line went dead")

    with pytest.raises(Missing):
        provision.made("some", "version 1", fetch)
    assert not list((tmp_path / "penstock" / "conformance").iterdir())


def test_every_pin_has_a_version_and_a_hash() -> None:
    pinned = provision.pins()
    assert all(len(coordinate.split(":")) == 3 for coordinate in pinned["maven"])
    assert all(len(bytes.fromhex(found)) == 32 for found in pinned["maven"].values())
    assert all(pin["version"] and pin["integrity"].startswith("sha512-") for pin in pinned["npm"].values())


def test_scenarios_have_names_of_their_own_and_every_client_has_some() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert all(scenarios_of(client) for client in CLIENTS)
    assert all(scenario.promise.endswith(".") for scenario in SCENARIOS)


@pytest.mark.parametrize("read", [["a", "b", "b"], ["a"], ["b", "a"], ["a", "b", "c"]], ids=str)
def test_a_record_that_is_twice_or_lost_or_out_of_order_or_aborted_is_not_exactly_once(read: list[str]) -> None:
    check_exactly_once({0: ["a", "b"], 1: []}, {0: ["a", "b"], 1: []})
    with pytest.raises(AssertionError):
        check_exactly_once({0: read, 1: []}, {0: ["a", "b"], 1: []})


class Reader:
    """A member with the partitions that the test sets."""

    def __init__(self, *partitions: int) -> None:
        self._partitions = partitions

    def begin(self, name: str, **arguments: object) -> None:
        """It is asked for nothing but its share."""

    def answer(self) -> dict[str, list[list[object]]]:
        return {"records": [], "assignment": [["topic", each] for each in self._partitions]}


def test_partitions_are_shared_only_when_each_has_one_reader() -> None:
    members = Members("group", "topic")
    half = PARTITIONS // 2
    shares = {
        (half, PARTITIONS): [half, PARTITIONS - half],
        (half + 1, PARTITIONS): None,  # one has two readers
        (half, PARTITIONS - 1): None,  # one has none
    }
    for (first_end, second_end), expected in shares.items():
        members.drivers = [Reader(*range(first_end)), Reader(*range(half, second_end))]  # type: ignore[list-item]
        assert members.shares() == expected
