"""The guide of the command line names only commands that exist, and names each command."""

import re
from pathlib import Path

import pytest

from penstock.cli import COMMANDS, parse_arguments

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "cli.md").read_text()
NAMES = [name for section in COMMANDS.values() for name in section]
# A command, and its verb if it has verbs.
NAMED = sorted({(command, verb) for command, verb in re.findall(r"penstock ([a-z]+)(?: ([a-z][a-z-]*))?", GUIDE)})


def test_the_guide_names_each_command() -> None:
    apart = {"up", "agent"}  # they are in the README and on the page of the deployment
    assert {command for command, _ in NAMED} >= set(NAMES) - apart


@pytest.mark.parametrize(("command", "verb"), NAMED)
def test_a_command_in_the_guide_exists(command: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments([command, *([verb] if verb else []), "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: penstock {command}")
