"""The table of commands, errors that suggest the nearest word, and the imports of the help."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import COMMANDS, main, parse_arguments

NAMES = [name for section in COMMANDS.values() for name in section]
HEAVY = {"kafka", "nats", "aiohttp", "rich", "yaml", "structlog", "cryptography", "importlib.metadata"}


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: penstock {name} ")


def test_the_help_lists_each_command_under_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert all(f"{heading}:" in lines for heading in COMMANDS)
    assert [line.split()[0] for line in lines if line.startswith("  ")] == NAMES


@pytest.mark.parametrize("argv", [["--help"], ["--version"]])
def test_help_and_version_import_almost_nothing(argv: list[str]) -> None:
    code = f"import sys; from penstock.cli import main\ntry: main({argv!r})\nexcept SystemExit: pass\n"
    code += f"print('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize(
    ("argv", "error_text"),
    [
        (["topc"], "penstock: error: argument COMMAND: invalid choice: 'topc'; did you mean 'topic'?"),
        (["topic", "lst"], "penstock topic: error: argument VERB: invalid choice: 'lst'; did you mean 'list'?"),
        (["topic"], "penstock topic: error: the following arguments are required: VERB; `penstock topic --help` lists"),
        ([], "penstock: error: the following arguments are required: COMMAND; `penstock --help` lists them"),
        (["topic", "create"], "error: the following arguments are required: TOPIC\n"),
        (["topic", "list", "--username"], "error: unrecognized arguments: --username\n"),
        (["topic", "list", "--detial"], "unrecognized arguments: --detial; did you mean --detail?"),
        (["topic", "list", "-o", "jsn"], "argument -o/--output: invalid choice: 'jsn'; did you mean 'json'?"),
        (["topic", "list", "-o", "xml"], "invalid choice: 'xml'; choose from table, json, yaml"),
        (["topic", "list", "--timeout", "0"], "a time-out is more than 0 and at most 3600 seconds: 0"),
        (["topic", "list", "--timeout", "10s"], "a time-out is more than 0 and at most 3600 seconds: 10s"),
        (["topic", "list", "a", "b"], "penstock topic list: error: unrecognized arguments: b"),
    ],
)
def test_a_misspelt_word_is_corrected(argv: list[str], error_text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert error_text in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "penstock" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["completion", "bash"], ["credentials", "DIR"]])
def test_a_reader_that_has_enough_is_no_error(argv: list[str], tmp_path: Path) -> None:
    """As in `penstock completion bash | head -0`."""
    reader, writer = os.pipe()
    os.close(reader)
    words = [str(tmp_path) if word == "DIR" else word for word in argv]
    with open(writer, "wb") as output:
        command = [sys.executable, "-m", "penstock.cli", *words]
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_broken_pipe_elsewhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: argparse.Namespace) -> int:
        raise BrokenPipeError("a connection")

    monkeypatch.setattr("penstock.cli.completion.run", fail)
    with pytest.raises(BrokenPipeError, match="a connection"):
        main(["completion", "bash"])
