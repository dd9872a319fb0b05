"""`penstock journal`: a preview first, then a question, then the work; and the arguments of the program."""

import json
import sys
from pathlib import Path

import pytest

from penstock.cli import parse_arguments
from penstock.cli.journal import moving

PREVIEW = ["--dry-run", "true"]


class Program:
    """A stand-in for the sequencer's program: records the arguments of each start, and ends with a code."""

    def __init__(self, folder: Path) -> None:
        self.code = 0
        self._written = folder / "arguments"

    def run(self, *words: str) -> int:
        source = f"import json, sys; open({str(self._written)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')"
        command = [sys.executable, "-c", f"{source}; sys.exit({self.code})"]
        return moving.run(parse_arguments(["journal", *words]), program=command)

    @property
    def starts(self) -> list[list[str]]:
        """The arguments of all starts."""
        return [json.loads(line) for line in self._written.read_text().splitlines()]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_a_confirmed_move_is_shown_first_and_then_done(program: Program) -> None:
    flags = ["--nats-url", "old", "--store", "s3://b", "--cluster", "c", "--to-env-file", "f", "--remove-old"]
    assert program.run("move", "--to", "new", "--replicas", "3", *flags, "--yes") == 0
    shared = ["--nats-url", "old", "--store-url", "s3://b", "--cluster", "c", "--to-nats-url", "new"]
    done = [*shared, "--to-env-file", "f", "--copies", "3", "--remove-old", "true"]
    assert program.starts == [[*done, *PREVIEW], done]


def test_without_a_terminal_it_must_be_confirmed_and_no_password_is_shown(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run("move", "--to", "nats://user:secret@new:4222") == 1
    assert len(program.starts) == 1
    assert capsys.readouterr().err == ("penstock: Move the journal to nats://***@new:4222? Confirm it with --yes\n")


def test_a_preview_that_fails_is_the_end(program: Program) -> None:
    program.code = 1
    assert program.run("move", "--to", "new", "--yes") == 1
    assert len(program.starts) == 1


def test_a_dry_run_is_only_the_preview(program: Program) -> None:
    assert program.run("replicas", "3", "--dry-run") == 0
    assert program.starts == [["--copies", "3", *PREVIEW]]


def test_copies_are_changed_after_a_question(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run("replicas", "3") == 1
    assert "Change the copies? Confirm it with --yes" in capsys.readouterr().err
    assert program.run("replicas", "3", "--yes") == 0
    assert program.starts[-1] == ["--copies", "3"]


def test_without_a_sequencer_the_error_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert moving.run(parse_arguments(["journal", "replicas", "3"]), is_installed=lambda: False) == 1
    assert "the sequencer is not installed here" in capsys.readouterr().err
