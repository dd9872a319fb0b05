"""Runs seeds of the simulator under mutants, each mutant in a separate process.

A fork server saves most of the import time of a new process. It has imported third-party libraries, but nothing that
a mutant may change. Its children plant their mutants, import the services, and run.
"""

import importlib
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from tests.testkit.mutants.catalog import MUTANTS
from tests.testkit.mutants.importing import SETTING, plant

ROOT = Path(__file__).parents[3]
PRELOADED = ("aiohttp.web", "crc32c", "nats", "nats.js", "prometheus_client", "structlog")


class Request(msgspec.Struct):
    """A mutant, and the runs to make under it, by name, until one fails."""

    mutant: str
    runs: list[str]


class Killed(msgspec.Struct):
    """The first run that failed, and its report."""

    run: str
    failures: list[str]
    report: str


class Answer(msgspec.Struct):
    """The result of a request; `killed` is None if no run failed."""

    killed: Killed | None = None
    error: str = ""  # why the runs could not be made


class MutantSimulations:
    """A fork server, from the first request until `close`."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None

    def first_failure(self, mutant: str, runs: Sequence[str]) -> Killed | None:
        """The first of the runs that fails under the mutant, None if the mutant survives them all."""
        server = self._server = self._server or _start()
        assert server.stdin is not None and server.stdout is not None, "both are pipes"
        server.stdin.write(msgspec.json.encode(Request(mutant, list(runs))) + b"\n")
        server.stdin.flush()
        line = server.stdout.readline()
        answer = msgspec.json.decode(line, type=Answer) if line else Answer(error="the fork server has ended")
        if answer.error:
            raise RuntimeError(f"mutant {mutant} could not be simulated: {answer.error}")
        return answer.killed

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.communicate()
            self._server = None


def _start() -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != SETTING}
    command = [sys.executable, "-m", "tests.testkit.mutants.simulations"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer each line of requests with a child process, one after the other."""
    for name in PRELOADED:
        importlib.import_module(name)
    for line in requests:
        child = os.fork()
        if child == 0:
            answers.write(msgspec.json.encode(_answer(line)) + b"\n")
            answers.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            answers.write(msgspec.json.encode(Answer(error=f"the child ended with status {status}")) + b"\n")
            answers.flush()


def _answer(line: bytes) -> Answer:
    try:
        request = msgspec.json.decode(line, type=Request)
        plant(MUTANTS[request.mutant])
        return Answer(_first_failure(request.runs))
    except BaseException:  # noqa: BLE001  the boundary of the child: the caller gets the traceback
        return Answer(error=traceback.format_exc())


def _first_failure(runs: Sequence[str]) -> Killed | None:
    from tests.testkit.sim.run import run_named  # not before the mutant is planted

    for name in runs:
        outcome = run_named(name)
        if outcome.failures:
            return Killed(name, outcome.failures, outcome.report())
    return None


if __name__ == "__main__":
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the output of a run is no answer
        serve(sys.stdin.buffer, answers)
