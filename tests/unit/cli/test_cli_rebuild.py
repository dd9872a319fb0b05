"""`penstock rebuild`: the arguments that it passes on, and its checks before the start."""

import json
import sys
from pathlib import Path

import pytest

from penstock.cli import main, parse_arguments
from penstock.cli.data_folder import take_folder
from penstock.cli.journal import rebuild


class Program:
    """A stand-in for the sequencer's program: records its arguments, and ends with a code."""

    def __init__(self, folder: Path) -> None:
        self.code = 0
        self._written = folder / "arguments.json"

    def run(self, *flags: str) -> int:
        source = f"import json, pathlib, sys; pathlib.Path({str(self._written)!r}).write_text(json.dumps(sys.argv[1:]))"
        command = [sys.executable, "-c", f"{source}; sys.exit({self.code})"]
        return rebuild.run(parse_arguments(["rebuild", *flags]), program=command)

    @property
    def arguments(self) -> list[str]:
        """The arguments of its start."""
        return list(json.loads(self._written.read_text()))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert text.startswith("penstock: ")
    assert text.count("\n") == 1
    return text


def test_with_running_servers_only_the_given_flags_are_passed_on(program: Program) -> None:
    assert program.run("--nats-url", "nats://there:4222") == 0
    assert program.arguments == [
        *("--nats-url", "nats://there:4222"),
        *("--dry-run", "false", "--json", "false"),
    ]
    assert program.run("--nats-url", "n", "--store", "s3://b", "--cluster", "c", "--dry-run", "--json") == 0
    assert program.arguments == [
        *("--nats-url", "n", "--store-url", "s3://b", "--cluster", "c", "--dry-run", "true", "--json", "true")
    ]


def test_its_exit_code_is_that_of_the_rebuild(program: Program) -> None:
    program.code = 1
    assert program.run("--nats-url", "nats://there:4222") == 1


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rebuild", "--data", str(tmp_path / "typo")]) == 1
    assert "there is no folder" in printed(capsys)
    assert not (tmp_path / "typo").exists()


def test_a_folder_that_penstock_runs_on_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with take_folder(tmp_path):
        assert main(["rebuild", "--data", str(tmp_path)]) == 1
    assert "another penstock is running on the data folder" in printed(capsys)


def test_without_a_sequencer_the_error_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert rebuild.run(parse_arguments(["rebuild"]), is_installed=lambda: False) == 1
    assert "the sequencer is not installed here" in printed(capsys)


def test_an_empty_store_gives_no_journal_and_the_server_is_stopped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["rebuild", "--data", str(tmp_path)]) == 1
    assert "the store has no good snapshot of cluster default" in capfd.readouterr().err
    with take_folder(tmp_path):
        assert not list((tmp_path / "objects").rglob("*-*"))
