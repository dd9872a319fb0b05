"""Runs of other projects' tests: each outcome is read as the project's own runner means it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.provision import Missing
from tests.suites import __main__
from tests.suites.brokers.shape import Brokers, Shape
from tests.suites.fetched import check_integrity
from tests.suites.results import KAFKA, PENSTOCK, Result, failures, merged, read, save
from tests.suites.running import perform
from tests.suites.suites.franz_go import FranzGo
from tests.suites.suites.kafkajs import KafkaJs
from tests.suites.suites.librdkafka import numbered_tests, read_outcomes
from tests.suites.suites.serializers import Serializers
from tests.suites.suites.suite import FAILED, PASSED, SKIPPED, Command, Outcome
from tests.testkit.docs.suites import UNKNOWN, makers

BROKERS = Brokers(("127.0.0.1:1", "127.0.0.1:2"), (), None)
GO_OUTPUT = """
=== RUN   TestETL
    group_test.go:33: record missing
    --- PASS: TestETL/range (1.00s)
    --- FAIL: TestETL/sticky (2.00s)
--- FAIL: TestETL (3.00s)
FAIL
"""
RUNNER_OUTPUT = """
| <MAIN>                                   |     FAILED |  11.000s |
| 0019_list_groups                         |     PASSED |   1.500s |
| 0019_other                               |     FAILED |   1.500s | list_groups():12: too many
| 0019_local                               |    SKIPPED |   0.000s |
| 0019_mock                                |    SKIPPED |   0.000s | Filtered due to negative test flags
| 0019_manual                              |    SKIPPED |   0.000s | needs a debugger
no more
"""
RUNNER_SOURCE = """
    _TEST(0000_unittests, TEST_F_LOCAL, _THRES(.ucpu = 100.0)),
    _TEST(0019_list_groups, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0028_names, TEST_F_KNOWN_ISSUE, .extra = "issue 529"),
    _TEST(0045_update, TEST_F_KNOWN_ISSUE_WIN32),
    _TEST(0045_mock, TEST_F_LOCAL),
    _TEST(0045_remove, 0, TEST_BRKVER(0, 9, 0, 0), .scenario = "noautocreate"),
    _TEST(0103_transactions, 0, TEST_BRKVER(0, 11, 0, 0), .scenario = "default,ak23"),
"""


class Scripts:
    """A suite whose tests are lines of Python; each prints its outcome."""

    name = project = "scripts"
    shape = Shape()

    def __init__(self, **scripts: str) -> None:
        self._scripts = scripts

    def tests(self) -> list[str]:
        return list(self._scripts)

    def command(self, test: str, brokers: Brokers, folder: Path) -> Command:
        return Command([sys.executable, "-c", self._scripts[test]], {"SEEDS": brokers.bootstrap})

    def outcomes(self, test: str, code: int, output: str) -> dict[str, Outcome]:
        return {test: Outcome(FAILED if code else PASSED, output.strip())}


class Absent(Scripts):
    """A suite that this machine cannot build."""

    def tests(self) -> list[str]:
        raise Missing("there is no compiler on this machine")


@contextmanager
def opened(_folder: Path, _shape: Shape) -> Iterator[Brokers]:
    yield BROKERS


def run(suite: Scripts, folder: Path, *arguments: str) -> int:
    """The exit code of a run with the results in a file."""
    files = ["--results", str(folder / "results.json"), "--logs", str(folder / "logs")]
    return __main__.main([*files, *arguments], suites=[suite], openers={PENSTOCK: opened, KAFKA: opened})


def result(test: str, brokers: str, outcome: str) -> Result:
    return Result("scripts", test, brokers, outcome, "why", 1.0)


def test_subtests_of_go_count_in_place_of_their_test() -> None:
    found = FranzGo().outcomes("TestETL", 1, GO_OUTPUT)
    assert found == {
        "TestETL/range": Outcome(PASSED),
        "TestETL/sticky": Outcome(FAILED, "record missing"),
    }


def test_a_go_test_that_ends_without_a_result_has_failed() -> None:
    assert FranzGo().outcomes("TestETL", 2, "panic: no\n") == {"TestETL": Outcome(FAILED, "panic: no")}


def test_a_race_at_the_end_of_a_go_process_is_a_failure() -> None:
    found = FranzGo().outcomes("TestPing", 66, "--- PASS: TestPing (0.00s)\n")
    assert found["TestPing"].outcome == FAILED


def test_the_summary_of_librdkafka_has_the_tests_that_ran_and_those_that_skipped_themselves() -> None:
    assert read_outcomes(RUNNER_OUTPUT, ["0019_list_groups", "0019_lost"], 134) == {
        "0019_list_groups": Outcome(PASSED, ""),
        "0019_other": Outcome(FAILED, "list_groups():12: too many"),
        "0019_manual": Outcome(SKIPPED, "needs a debugger"),
        "0019_lost": Outcome(FAILED, "no more"),
    }


def test_a_runner_of_librdkafka_that_fails_after_its_tests_is_a_failure() -> None:
    output = "| 0019_list_groups | PASSED | 1.500s |\n3 thread(s) still active in librdkafka\n"
    assert read_outcomes(output, ["0019_list_groups"], 0)["0019_list_groups"].outcome == PASSED
    assert read_outcomes(output, ["0019_list_groups"], 134)["0019_list_groups"] == Outcome(
        FAILED, "3 thread(s) still active in librdkafka"
    )


def test_the_tests_of_librdkafka_are_those_with_brokers_of_their_scenario() -> None:
    assert numbered_tests(RUNNER_SOURCE, "default") == {
        "0019": ["0019_list_groups"],
        "0045": ["0045_update"],
        "0103": ["0103_transactions"],
    }
    assert numbered_tests(RUNNER_SOURCE, "noautocreate") == {"0045": ["0045_remove"]}


def test_a_scenario_of_kafkajs_ends_as_its_line_says() -> None:
    lines = (
        "KafkaJS      admin-groups      failed     1.2 s  no\nKafkaJS      admin-group-offsets    not offered   0.2 s\n"
    )
    assert KafkaJs().outcomes("admin-groups", 1, lines) == {"admin-groups": Outcome(FAILED, "no")}
    assert KafkaJs().outcomes("admin-group-offsets", 0, lines)["admin-group-offsets"].outcome == SKIPPED
    assert KafkaJs().outcomes("admin-topics", 1, lines + "Killed")["admin-topics"] == Outcome(FAILED, "Killed")


def test_a_serializer_that_ends_with_an_error_has_failed() -> None:
    assert Serializers().outcomes("avro", 0, "a warning\n") == {"avro": Outcome(PASSED)}
    assert Serializers().outcomes("avro", 1, "Traceback\nother values\n") == {"avro": Outcome(FAILED, "other values")}


def test_a_process_gets_the_brokers_and_its_output_is_kept(tmp_path: Path) -> None:
    suite = Scripts(echo="import os; print(os.environ['SEEDS'])")
    (found,) = perform(suite, "echo", PENSTOCK, BROKERS, tmp_path, 60.0)
    assert (found.outcome, found.detail) == (PASSED, "127.0.0.1:1,127.0.0.1:2")
    assert (tmp_path / "scripts" / PENSTOCK / "echo" / "output").read_text() == "127.0.0.1:1,127.0.0.1:2\n"


def test_a_process_that_hangs_has_failed(tmp_path: Path) -> None:
    suite = Scripts(hang="import threading; print('begun', flush=True); threading.Event().wait()")
    (found,) = perform(suite, "hang", PENSTOCK, BROKERS, tmp_path, 0.5)
    assert found.outcome == FAILED
    assert found.detail.startswith("ended after the limit of 0 s")


def test_a_run_fails_if_a_test_fails_that_passes_at_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = "import os, sys; sys.exit('penstock' in os.getcwd())"
    assert run(Scripts(good="pass", bad=ours), tmp_path) == 1
    assert "FAILED: scripts: bad" in capsys.readouterr().out
    assert run(Scripts(good="pass", bad="pass"), tmp_path, "--failed", "--without-kafka") == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out


def test_a_failure_that_kafka_has_too_is_named_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Scripts(bad="import sys; sys.exit(3)"), tmp_path) == 0
    assert "FAILED, with Kafka too: scripts: bad" in capsys.readouterr().out


def test_a_suite_that_cannot_be_built_is_not_skipped_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Absent(), tmp_path) == 1
    assert "NOT RUN: scripts: there is no compiler" in capsys.readouterr().err


def test_results_of_tests_that_did_not_run_now_are_kept(tmp_path: Path) -> None:
    path, suite = tmp_path / "results.json", Scripts()
    both = [result("one", PENSTOCK, FAILED), result("two", PENSTOCK, FAILED), result("one", KAFKA, FAILED)]
    save(path, merged({}, [suite], both), ["scripts"])
    save(path, merged(read(path), [suite], [result("two", PENSTOCK, PASSED)]), ["scripts"])
    assert failures(read(path)["scripts"]["tests"]) == ([], ["one"])


def test_the_page_names_the_cause_of_each_failure() -> None:
    found = [result("one", PENSTOCK, FAILED), result("two", PENSTOCK, FAILED), result("two", KAFKA, FAILED)]
    alone = list(merged({}, [Scripts()], found[:1]).values())
    assert len(list(makers(alone, {})["suites"]())) == 3  # no row for Kafka
    kept = list(merged({}, [Scripts()], [*found, result("three", PENSTOCK, FAILED)]).values())
    made = makers(kept, {"scripts": {"one": "It needs a disk."}})
    assert list(made["suites"]())[2:] == [
        "| `scripts` | scripts | Penstock | 0 | 3 | 0 |",
        "| `scripts` | scripts | Kafka | 0 | 1 | 0 |",
    ]
    assert list(made["suite_failures"]())[2:] == [
        "| `scripts` | `one` | It needs a disk. |",
        f"| `scripts` | `three` | {UNKNOWN} |",
    ]
    assert list(made["suite_failures_of_kafka"]())[2:] == ["| `scripts` | `two` | fails |"]


def test_an_archive_with_another_hash_is_not_used() -> None:
    with pytest.raises(Missing, match="another hash"):
        check_integrity(b"changed", "sha512-AAAA", "a-package")
