"""The reports of a transactional writer in a process of its own.

A crash of its client ends only that process. A report is one line of JSON on the writer's standard output, written
before the step that it announces. So the lines before a crash have all steps that may have had an effect. All processes
use the machine's one monotonic clock.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import IO, Any

from tests.testkit.loads.transaction_history import GroupPlace, History, Life, Place, Sent, Transaction

DEATH_INTERVAL_S = 300.0  # of two deaths of one writer; a client that crashes more often is a failure


class Reporter:
    """The writer's side: a method for each event, which writes its line at once."""

    def __init__(self, output: int) -> None:
        self._output = output  # a file descriptor
        self._begun = 0  # transactions

    def begin_life(self) -> None:
        """Report an answer to InitProducerId."""
        self._report("life", moment())

    def begin(self) -> int:
        """Report the begin of a transaction in the last session; the number of the transaction in this process."""
        number, self._begun = self._begun, self._begun + 1
        self._report("begin", number)
        return number

    def send(self, number: int, place: Place, value: str) -> None:
        """Report that a record is about to be sent."""
        self._report("send", number, place, value)

    def acknowledged(self, value: str, offset: int) -> None:
        """Report the offset of a record."""
        self._report("acknowledged", value, offset)

    def consume(self, number: int, group_place: GroupPlace, first: int, end: int) -> None:
        """Report that a transaction is about to consume these offsets."""
        self._report("consume", number, group_place, first, end)

    def ask(self, number: int) -> None:
        """Report that the commit of a transaction is about to be requested."""
        self._report("ask", number, moment())

    def committed(self, number: int) -> None:
        """Report the answer that a transaction is committed."""
        self._report("committed", number, moment())

    def observe(self, group_place: GroupPlace, offset: int, asked_at: int) -> None:
        """Report an answer to a request for a group's committed offset."""
        self._report("observe", group_place, offset, asked_at, moment())

    def fail(self, reason: str) -> None:
        """Report why the writer ends."""
        self._report("fail", reason)

    def _report(self, *event: object) -> None:
        line = json.dumps(event).encode() + b"\n"
        while line:
            line = line[os.write(self._output, line) :]


def moment() -> int:
    """The moment of an event, the same in all processes of this machine."""
    return time.monotonic_ns()


class _Reports:
    """The tester's side: enters the lines of one writer process into its `History`."""

    def __init__(self, history: History, transactional_id: str) -> None:
        self.failure: str | None = None
        self._history = history
        self._transactional_id = transactional_id
        self._life: Life
        self._transactions: dict[int, Transaction] = {}
        self._sent: dict[str, Sent] = {}  # by value

    def enter(self, lines: IO[bytes]) -> None:
        """Enter all lines until the end of the process; a cut last line announces a step that did not happen."""
        for line in lines:
            if line.endswith(b"\n"):
                kind, *facts = json.loads(line)
                getattr(self, f"_enter_{kind}")(*facts)

    def _enter_life(self, at: int) -> None:
        self._life = self._history.begin_life(self._transactional_id, at=at)

    def _enter_begin(self, number: int) -> None:
        self._transactions[number] = self._history.begin(self._life)

    def _enter_send(self, number: int, place: list[Any], value: str) -> None:
        topic, partition = place
        self._sent[value] = Sent((topic, partition), value.encode())
        self._transactions[number].sent.append(self._sent[value])

    def _enter_acknowledged(self, value: str, offset: int) -> None:
        self._sent[value].offset = offset

    def _enter_consume(self, number: int, group_place: list[Any], first: int, end: int) -> None:
        self._transactions[number].consumed[_group_place(group_place)] = (first, end)

    def _enter_ask(self, number: int, at: int) -> None:
        self._history.ask(self._transactions[number], at)

    def _enter_committed(self, number: int, at: int) -> None:
        self._history.committed(self._transactions[number], at)

    def _enter_observe(self, group_place: list[Any], offset: int, asked_at: int, at: int) -> None:
        self._history.observe(_group_place(group_place), offset, asked_at, at)

    def _enter_fail(self, reason: str) -> None:
        self.failure = reason


def _group_place(found: list[Any]) -> GroupPlace:
    group, (topic, partition) = found
    return group, (topic, partition)


class WriterProcess(threading.Thread):
    """Runs a writer, enters its reports, and starts it again when a signal ends it.

    The last argument of `command` is the number of deaths before. The writer ends when its standard input ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        history: History,
        death_interval_s: float = DEATH_INTERVAL_S,
    ) -> None:
        super().__init__(name=name)
        self.failure: BaseException | None = None
        self.deaths: Counter[str] = Counter()  # by signal
        self._command = command
        self._history = history
        self._death_interval_s = death_interval_s
        self._stopping = threading.Event()
        self._is_given_up = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Let the writer start no further transaction."""
        self._stopping.set()
        self._end_input()

    def give_up(self) -> None:
        """End the writer at once."""
        self._is_given_up.set()
        self._kill()

    def run(self) -> None:
        """Run writers until one ends without a signal."""
        died_s = float("-inf")
        try:
            while (code := self._run_one()) < 0 and not self._is_given_up.is_set():
                name = signal.Signals(-code).name
                self.deaths[name] += 1
                print(f"{self.name} died of {name}, deaths {self.deaths.total()}", flush=True)
                before_s, died_s = died_s, time.monotonic()
                if died_s - before_s < self._death_interval_s:
                    raise AssertionError(f"two deaths in {died_s - before_s:.0f} s: {dict(self.deaths)}")
        except BaseException as error:  # noqa: BLE001  checked by the thread that waits for this one
            self.failure = error

    def _run_one(self) -> int:
        command = [*self._command, str(self.deaths.total())]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self._process = process
            if self._stopping.is_set():
                self._end_input()
            if self._is_given_up.is_set():
                self._kill()
            assert process.stdout is not None
            reports = _Reports(self._history, self.name)
            try:
                reports.enter(process.stdout)
            except BaseException:
                process.kill()
                raise
        if process.returncode > 0:
            raise AssertionError(reports.failure or f"exit code {process.returncode}")
        return process.returncode

    def _end_input(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
