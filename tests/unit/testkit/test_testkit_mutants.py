"""Mutants fit the source that they change, take effect in every process of a command, and leave no trace behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testkit.mutants.catalog import AREAS, MUTANTS
from tests.testkit.mutants.importing import AlreadyImported, plant
from tests.testkit.mutants.mutant import Change, Mutant, StaleMutant, check_applies, mutated

ROOT = Path(__file__).parents[3]
NAME = "age_orphans_by_wall_clock"
MODULE = "penstock_janitor.judge"
# An orphan born at 0, when the journal's clock is at 0 and the janitor's own is at one hour and more.
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


def test_each_mutant_has_a_name_of_its_own_a_reason_and_changes() -> None:
    assert len(MUTANTS) == sum(map(len, AREAS.values())), "two mutants have one name"
    assert not [name for name, mutant in MUTANTS.items() if not mutant.why or not mutant.changes]


@pytest.mark.parametrize(("source", "times"), [("a = 1\n", 0), ("b\nb\n", 2)])
def test_a_text_that_is_not_there_once_makes_the_mutant_stale(source: str, times: int) -> None:
    with pytest.raises(StaleMutant, match=f"some.module has this text {times} times"):
        mutated(source, "example", [Change("some.module", "b\n", "c\n")])


def test_a_module_that_is_not_there_makes_the_mutant_stale() -> None:
    with pytest.raises(StaleMutant, match=r"no module tests\.nowhere\.module"):
        check_applies(Mutant("example", "why", [Change("tests.nowhere.module", "a", "b")]))


def test_a_mutant_of_a_module_that_is_imported_already_is_refused() -> None:
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
    assert not list(tmp_path.rglob("penstock_janitor/judge.*.pyc"))
    assert run(sys.executable, "-c", ORPHAN_GOES).stdout == "False\n"
    assert list(tmp_path.rglob("penstock_janitor/judge.*.pyc"))
    assert under_the_mutant(sys.executable, "-c", ORPHAN_GOES).stdout == "True\n"


def test_a_name_that_no_mutant_has_is_refused() -> None:
    done = run(sys.executable, "-m", "tests.testkit.mutants", "nobody", "--", "true")
    assert done.returncode != 0 and "no mutant nobody" in done.stderr
    setting = os.environ | {"PENSTOCK_MUTANT": "nobody", "PYTHONPATH": f"{ROOT}/tests/testkit/mutants/site:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", ""], cwd=ROOT, env=setting, capture_output=True, text=True)
    assert done.returncode != 0 and "PENSTOCK_MUTANT names no mutant: nobody" in done.stderr
