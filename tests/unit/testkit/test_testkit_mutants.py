"""Mutants apply to the current source, work in every process of a command, and leave no bytecode."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit.mutants.catalog import AREAS, MUTANTS
from tests.testkit.mutants.importing import AlreadyImported, plant
from tests.testkit.mutants.mutant import Change, Mutant, StaleMutant, check_applies, mutated
from tests.testkit.mutants.sweep import first_tests

ROOT = Path(__file__).parents[3]
NAME = "age_orphans_by_wall_clock"
MODULE = "penstock_janitor.rules.classification"
# An orphan created at 0, with the journal's clock at 0 and the janitor's clock after more than an hour.
ORPHAN_GOES = (
    f"from {MODULE} import Now, Rules, may_be_orphan; print(may_be_orphan(bytes(16), Now(0, 4_000_000), Rules(0)))"
)


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def under_the_mutant(*command: str) -> "subprocess.CompletedProcess[str]":
    return run(sys.executable, "-m", "tests.testkit.mutants", NAME, "--", *command)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_applies_to_the_source_as_it_is_now(name: str) -> None:
    check_applies(MUTANTS[name])


def test_each_mutant_has_a_unique_name_a_reason_and_changes() -> None:
    assert len(MUTANTS) == sum(map(len, AREAS.values())), "two mutants have one name"
    assert not [name for name, mutant in MUTANTS.items() if not mutant.why or not mutant.changes]


@pytest.mark.parametrize(("source", "times"), [("a = 1\n", 0), ("b\nb\n", 2)])
def test_a_mutant_is_stale_unless_its_text_is_there_exactly_once(source: str, times: int) -> None:
    with pytest.raises(StaleMutant, match=f"some.module has this text {times} times"):
        mutated(source, "example", [Change("some.module", "b\n", "c\n")])


def test_a_mutant_of_a_missing_module_is_stale() -> None:
    with pytest.raises(StaleMutant, match=r"no module tests\.nowhere\.module"):
        check_applies(Mutant("example", "why", [Change("tests.nowhere.module", "a", "b")]))


def test_a_mutant_of_an_imported_module_is_rejected() -> None:
    with pytest.raises(AlreadyImported, match="changes " + __name__):
        plant(Mutant("example", "why", [Change(__name__, "a", "b")]))


def test_a_command_and_the_processes_that_it_starts_run_under_the_mutant() -> None:
    assert run(sys.executable, "-c", ORPHAN_GOES).stdout == "False\n"
    assert under_the_mutant(sys.executable, "-c", ORPHAN_GOES).stdout == "True\n"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ORPHAN_GOES!r}], check=True)"
    assert under_the_mutant(sys.executable, "-c", nested).stdout == "True\n"


def test_a_mutant_neither_reads_nor_writes_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    assert under_the_mutant(sys.executable, "-c", ORPHAN_GOES).stdout == "True\n"
    assert list(tmp_path.rglob("penstock/contracts/ids.*.pyc")), "other modules are cached"
    assert not list(tmp_path.rglob("penstock_janitor/rules/classification.*.pyc"))
    assert run(sys.executable, "-c", ORPHAN_GOES).stdout == "False\n"
    assert list(tmp_path.rglob("penstock_janitor/rules/classification.*.pyc"))
    assert under_the_mutant(sys.executable, "-c", ORPHAN_GOES).stdout == "True\n"


def test_a_name_without_a_mutant_is_rejected() -> None:
    done = run(sys.executable, "-m", "tests.testkit.mutants", "unknown", "--", "true")
    assert done.returncode != 0 and "no mutant unknown" in done.stderr
    setting = os.environ | {"PENSTOCK_MUTANT": "unknown", "PYTHONPATH": f"{ROOT}/tests/testkit/mutants/site:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", ""], cwd=ROOT, env=setting, capture_output=True, text=True)
    assert done.returncode != 0 and "PENSTOCK_MUTANT names no mutant: unknown" in done.stderr


def test_each_mutant_has_tests_that_exist() -> None:
    assert not [path for name in MUTANTS for path in first_tests(name) if not (ROOT / path).exists()]


def test_a_sweep_names_the_tests_that_kill_a_mutant_and_fails_for_a_survivor(tmp_path: Path) -> None:
    killed = run(sys.executable, "-m", "tests.testkit.mutants.sweep", "keep_epoch_of_idle_producer")
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert "killed keep_epoch_of_idle_producer" in killed.stdout and "    tests/unit/sequencer/" in killed.stdout
    assert "1 of 1 mutants killed" in killed.stdout
    unknown = run(sys.executable, "-m", "tests.testkit.mutants.sweep", "unknown")
    assert unknown.returncode != 0 and "no such mutant: unknown" in unknown.stderr
