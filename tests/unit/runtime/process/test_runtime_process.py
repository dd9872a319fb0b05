"""The life of a service process, observed from outside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from penstock.runtime.journal import JOURNAL_STUCK_EXIT_CODE
from penstock.runtime.process.life import INVALID_EXIT_CODE

SERVICE = Path(__file__).with_name("example_service.py")
TIMEOUT_S = 60.0


class Process:
    """The example service as a child process; its steps are read as they come."""

    def __init__(self, behaviour: str, stderr: IO[str] | int = subprocess.PIPE, **environ: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(SERVICE), behaviour],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=os.environ | environ,
        )
        self.steps: list[str] = []

    @property
    def pid(self) -> int:
        return self._child.pid

    def until(self, step: str) -> str:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.steps.append(line.strip())
            if line.startswith(step):
                return line.strip()
        raise AssertionError(f"the service ended without {step}: {self.steps}")

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def end(self) -> tuple[int, list[str]]:
        """Exit code and the lines on stderr."""
        output, errors = self._child.communicate(timeout=TIMEOUT_S)
        self.steps += output.split("\n")[:-1]
        return self._child.returncode, (errors or "").splitlines()

    def kill(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.communicate()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(behaviour: str, stderr: IO[str] | int = subprocess.PIPE, **environ: str) -> Process:
        started.append(Process(behaviour, stderr, **environ))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


Start = Callable[..., Process]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_closes_while_the_service_still_runs(start: Start, number: int) -> None:
    process = start("well")
    process.until("run")
    process.signal(number)
    code, errors = process.end()
    assert code == 0
    assert process.steps == ["open", "run", "drain", "drained", "run ended", "close"]
    assert [json.loads(line)["event"] for line in errors] == ["service_started", "service_draining", "service_stopped"]


def test_startup_objects_are_frozen_before_the_service_runs(start: Start) -> None:
    """Without this, each full collection visits all modules, and no client is answered for that time."""
    process = start("run-counts")
    frozen = int(process.until("frozen: ").rpartition(" ")[2])
    process.signal(signal.SIGTERM)
    assert process.end()[0] == 0
    assert frozen > len(sys.modules), "each module has many containers"


def test_a_stop_logs_how_long_the_drain_took(start: Start) -> None:
    process = start("drain-takes-100-ms")
    process.until("run")
    process.signal(signal.SIGTERM)
    code, errors = process.end()
    stopped = json.loads(errors[-1])
    assert (code, stopped["event"]) == (0, "service_stopped")
    assert stopped["drained_ms"] >= 100


def test_a_second_signal_kills_at_once(start: Start) -> None:
    process = start("drain-hangs")
    process.until("run")
    process.signal(signal.SIGTERM)
    process.until("drain")
    process.signal(signal.SIGTERM)
    code, _errors = process.end()
    assert code == -signal.SIGTERM
    assert "close" not in process.steps


def test_a_drain_that_takes_too_long_is_cut_short_and_the_rest_still_happens(start: Start) -> None:
    process = start("drain-hangs", EXAMPLE_DRAIN_DEADLINE_MS="300")
    process.until("run")
    process.signal(signal.SIGTERM)
    code, errors = process.end()
    assert code == 1
    assert process.steps == ["open", "run", "drain", "run ended", "close"]
    assert json.loads(errors[-1])["error"] == "drain did not end in time"


def test_an_error_at_the_start_is_reported_in_one_sentence(start: Start) -> None:
    process = start("open-fails")
    code, errors = process.end()
    assert (code, errors) == (1, ["example: the store cannot be reached"])
    assert process.steps == ["open", "close"]


def test_an_error_in_the_constructor_is_reported_in_one_sentence(start: Start) -> None:
    assert start("make-fails").end() == (1, ["example: it cannot be made"])


def test_a_bug_at_the_start_is_one_log_line_with_its_trace(start: Start) -> None:
    code, errors = start("open-crashes").end()
    assert (code, len(errors)) == (1, 1)
    line = json.loads(errors[0])
    assert (line["event"], line["step"], line["error"]) == ("service_failed", "open", "a bug in open")
    assert "example_service.py" in line["exception"]


def test_a_signal_during_the_start_ends_it(start: Start) -> None:
    process = start("open-hangs")
    process.until("open")
    process.signal(signal.SIGTERM)
    code, errors = process.end()
    assert (code, process.steps) == (0, ["open", "close"])
    assert json.loads(errors[-1])["drained_ms"] == 0


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("run-fails", "the journal is gone"),
        ("run-crashes", "a bug in run"),
        ("run-returns", "the service ended without a stop signal"),
    ],
)
def test_a_loop_that_dies_takes_the_process_down_with_one_log_line(start: Start, behaviour: str, error: str) -> None:
    process = start(behaviour)
    code, errors = process.end()
    assert (code, process.steps) == (1, ["open", "run", "close"])
    events = [json.loads(line) for line in errors]
    assert [(line["event"], line.get("error")) for line in events] == [
        ("service_started", None),
        ("service_failed", error),
    ]


@pytest.mark.parametrize(
    ("behaviour", "error", "expected"),
    [
        ("open-invalid", "the bucket does not exist", INVALID_EXIT_CODE),
        ("open-corrupt", "the bucket has another journal", INVALID_EXIT_CODE),
        ("open-fails", "the store cannot be reached", 1),
    ],
)
def test_an_error_that_the_next_start_would_get_again_has_an_exit_code_of_its_own(
    start: Start, behaviour: str, error: str, expected: int
) -> None:
    code, errors = start(behaviour).end()
    assert (code, errors) == (expected, [f"example: {error}"])


def test_a_stuck_journal_has_an_exit_code_of_its_own(start: Start) -> None:
    code, errors = start("run-stuck").end()
    assert code == JOURNAL_STUCK_EXIT_CODE
    assert json.loads(errors[-1])["error"] == "the journal accepts nothing"


def test_a_full_disk_under_the_log_ends_no_service_and_changes_no_exit_code(start: Start) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("well", stderr=full)
        process.until("run")
        process.signal(signal.SIGTERM)
        assert process.end()[0] == 0
        assert start("run-stuck", stderr=full).end()[0] == JOURNAL_STUCK_EXIT_CODE


def test_a_loop_that_dies_while_draining_ends_the_drain(start: Start) -> None:
    process = start("run-fails-in-drain")
    process.until("run")
    process.signal(signal.SIGTERM)
    code, errors = process.end()
    assert code == 1
    assert [json.loads(line).get("error") for line in errors][2:] == ["it broke while draining"]


def test_a_bug_while_closing_is_a_failure(start: Start) -> None:
    process = start("close-crashes")
    process.until("run")
    process.signal(signal.SIGTERM)
    code, errors = process.end()
    assert code == 1
    assert json.loads(errors[-1])["step"] == "close"


def test_a_dead_parent_leaves_no_service_behind(start: Start) -> None:
    process = start("orphan")
    child = int(process.until("child").split()[1])
    process.until("run")
    process.kill()
    deadline_s = time.monotonic() + TIMEOUT_S
    while _lives(child):
        assert time.monotonic() < deadline_s, "the child outlived its parent"
        time.sleep(0.01)


def test_a_service_whose_parent_is_gone_already_does_not_start(start: Start) -> None:
    code, _errors = start("well", PENSTOCK_PARENT_PID="999999999").end()
    assert code == 1


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
