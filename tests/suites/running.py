"""Runs one test in a process of its own, with a time limit, and keeps its output."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path
from time import monotonic

from tests.suites.brokers.shape import Brokers
from tests.suites.results import Result
from tests.suites.suites.suite import FAILED, SKIPPED, Suite

COLORS = re.compile(r"\x1b\[[0-9;]*m")


def perform(suite: Suite, test: str, kind: str, brokers: Brokers, logs: Path, limit_s: float) -> list[Result]:
    """The results of one test and its parts."""
    folder = logs / suite.name / kind / test
    folder.mkdir(parents=True, exist_ok=True)
    began = monotonic()
    command = suite.command(test, brokers, folder)
    code = _run(command.arguments, os.environ | command.environment, folder, limit_s)
    took_s = monotonic() - began
    output = COLORS.sub("", (folder / "output").read_text(errors="replace"))
    found = suite.outcomes(test, -signal.SIGKILL if code is None else code, output)
    late = f"ended after the limit of {limit_s:.0f} s: " if code is None else ""
    return [
        Result(suite.name, name, kind, each.outcome, late * (each.outcome == FAILED) + each.detail, took_s)
        for name, each in found.items()
    ]


def line(result: Result) -> str:
    """The line that is printed at the end of a test."""
    why = result.detail if result.outcome in (FAILED, SKIPPED) else ""
    return f"{result.suite:16} {result.brokers:9} {result.outcome:8} {result.took_s:6.1f} s  {result.test}  {why[:200]}"


def _run(arguments: list[str], environment: dict[str, str], folder: Path, limit_s: float) -> int | None:
    """The exit code; None if the process and its children were killed at the time limit."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            arguments,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
