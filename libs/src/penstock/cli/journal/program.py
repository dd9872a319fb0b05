"""Runs a program of the sequencer for a command: the library imports no service."""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence

from penstock.cli.children import die_with_parent
from penstock.contracts.errors import Invalid

PACKAGE = "penstock_sequencer"


def program(module: str) -> list[str]:
    """The command line of a program of the sequencer."""
    return [sys.executable, "-m", f"{PACKAGE}.{module}"]


def has_sequencer() -> bool:
    """Whether the sequencer is installed in this environment."""
    return importlib.util.find_spec(PACKAGE) is not None


def check_is_installed(*, is_installed: bool) -> None:
    """`Invalid` with the remedy if the sequencer is not installed here."""
    if not is_installed:
        raise Invalid("the sequencer is not installed here; run this command in the sequencer's container")


def run_program(command: Sequence[str], options: Mapping[str, str]) -> int:
    """Run it with the options that are not empty, as flags; its exit code."""
    flags = [part for name, value in options.items() if value for part in (f"--{name}", value)]
    with subprocess.Popen([*command, *flags], preexec_fn=die_with_parent) as process:
        return process.wait()
