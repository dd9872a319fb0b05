"""`penstock rebuild`: whom it asks, what it passes on, and what it refuses before anything is started."""

import importlib.util
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.cli import main
from penstock.cli.options import take_folder


class Started:
    """Instead of the sequencer's program: notes how it was started."""

    argv: ClassVar[list[str]] = []
    code = 0

    def __init__(self, argv: list[str], **options: Any) -> None:
        Started.argv = argv

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def wait(self) -> int:
        return self.code


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> type[Started]:
    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr(Started, "argv", [])
    return Started


def said(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert text.startswith("penstock: ")
    assert text.count("\n") == 1
    return text


def test_with_servers_that_run_only_what_is_given_is_passed_on(started: type[Started]) -> None:
    assert main(["rebuild", "--nats-url", "nats://there:4222"]) == 0
    assert started.argv[1:] == [
        *("-m", "penstock_sequencer.rebuild", "--nats-url", "nats://there:4222"),
        *("--dry-run", "false", "--json", "false"),
    ]
    assert main(["rebuild", "--nats-url", "n", "--store", "s3://b", "--cluster", "c", "--dry-run", "--json"]) == 0
    assert started.argv[3:] == [
        *("--nats-url", "n", "--store-url", "s3://b", "--cluster", "c", "--dry-run", "true", "--json", "true")
    ]


def test_its_exit_code_is_that_of_the_rebuild(started: type[Started], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Started, "code", 1)
    assert main(["rebuild", "--nats-url", "nats://there:4222"]) == 1


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rebuild", "--data", str(tmp_path / "typo")]) == 1
    assert "there is no folder" in said(capsys)
    assert not (tmp_path / "typo").exists()


def test_a_folder_that_penstock_runs_on_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with take_folder(tmp_path):
        assert main(["rebuild", "--data", str(tmp_path)]) == 1
    assert "another penstock is running on the data folder" in said(capsys)


def test_where_there_is_no_sequencer_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["rebuild"]) == 1
    assert "the sequencer is not installed here" in said(capsys)


def test_an_empty_store_gives_no_journal_and_the_server_is_gone_afterwards(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["rebuild", "--data", str(tmp_path)]) == 1
    assert "the store has no snapshot of cluster default that is whole" in capfd.readouterr().err
    with take_folder(tmp_path):
        assert not list((tmp_path / "objects").rglob("*-*"))
