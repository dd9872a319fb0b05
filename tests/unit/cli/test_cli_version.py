"""The commit that `penstock --version` shows: from the wheel, from git, or none."""

import subprocess
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.contracts.newest_level import NEWEST_LEVEL
from penstock.version import VERSION, find_commit

GIT = ["git", "-c", "user.name=n", "-c", "user.email=e@example.invalid"]


def checkout(root: Path) -> Path:
    """A repository with one commit, and the folder of the package in it."""
    package = root / "libs" / "src" / "penstock"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*GIT, *words], cwd=root, check=True)
    return package


def test_a_checkout_asks_git_and_says_if_files_differ(tmp_path: Path) -> None:
    package = checkout(tmp_path)
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    commit = find_commit(package)
    assert len(commit) == 12 and head.startswith(commit)
    (package / "a.py").write_text("2")
    assert find_commit(package) == f"{commit}-modified"


def test_a_wheel_has_the_commit_in_a_file_also_inside_of_a_checkout(tmp_path: Path) -> None:
    package = checkout(tmp_path)
    (package / "commit.txt").write_text("0123456789ab\n")
    assert find_commit(package) == "0123456789ab"


def test_a_package_in_the_repository_of_another_project_has_no_commit(tmp_path: Path) -> None:
    checkout(tmp_path)
    installed = tmp_path / ".venv" / "lib" / "site-packages" / "penstock"
    installed.mkdir(parents=True)
    assert find_commit(installed) == ""


def test_without_git_or_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "libs" / "src" / "penstock"
    package.mkdir(parents=True)
    assert find_commit(package) == ""
    (tmp_path / ".git").mkdir()  # not a repository
    assert find_commit(package) == ""
    monkeypatch.setenv("PATH", "")
    assert find_commit(package) == ""


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"penstock {VERSION}, ")
    assert line.endswith(f"journal levels 0 to {NEWEST_LEVEL}\n")
