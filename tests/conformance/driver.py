"""A client in a process of its own, asked over its standard input, so that it can be killed at any step.

Requests and answers are lines of JSON; an answer's line begins with MARK, so that what a library prints is no answer.
First the process says `{"hello": {"client", "version", "library", "codecs"}}`. Then, for each `{"do": NAME, ...}`, it
says one of `{"ok": VALUE}`, `{"error": TEXT}` and `{"not_offered": NAME}`, and before that `{"at": STEP}` where it was
told to hold. What is asked is in `clients/protocol.py`.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

MARK = "@@ "
START_TIMEOUT_S = 180.0  # a Java beside everything else
ANSWER_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 15.0
ERRORS_SHOWN_CHARACTERS = 2_000


class NotOffered(Exception):
    """The client has no such function."""


class ClientError(Exception):
    """The client reported an error; its text is what it said."""


class Driver:
    """One running client; not for use by several threads."""

    def __init__(self, command: list[str], bootstrap: str, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | environment,
                start_new_session=True,
            )
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.hello: dict[str, Any] = self._next(START_TIMEOUT_S)["hello"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                if line.startswith(MARK):
                    self._lines.put(json.loads(line.removeprefix(MARK)))
        self._lines.put(None)

    def _next(self, timeout_s: float) -> dict[str, Any]:
        try:
            answer = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"the client said nothing for {timeout_s:g} s{self._errors()}") from None
        if answer is None:
            raise ClientError(f"the client's process ended{self._errors()}")
        return answer

    def _errors(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return f"; it wrote: {text[-ERRORS_SHOWN_CHARACTERS:]}" if text else ""

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ClientError(f"the client's process ended{self._errors()}") from None

    def ask(self, name: str, /, **arguments: Any) -> Any:
        """Ask and wait for the answer; `ClientError` with the client's own words, `NotOffered` if it cannot do this."""
        self.begin(name, **arguments)
        return self.answer()

    def begin(self, name: str, /, **arguments: Any) -> None:
        """Ask, and leave the answer for `answer`."""
        self._send({"do": name, **arguments})

    def ask_until(self, step: str, name: str, /, **arguments: Any) -> None:
        """Ask, and return when the client holds at `step`."""
        self._send({"do": name, "hold": step, **arguments})
        answer = self._next(ANSWER_TIMEOUT_S)
        if answer.get("at") != step:
            raise ClientError(f"the client did not come to {step!r}: {answer}")

    def go_on(self) -> None:
        """Let the client go on from where it holds; `answer` then waits for what comes of it."""
        self._send({"do": "go on"})

    def answer(self) -> Any:
        """The answer to what was asked."""
        answer = self._next(ANSWER_TIMEOUT_S)
        if "not_offered" in answer:
            raise NotOffered(answer["not_offered"])
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["ok"]

    def kill(self) -> None:
        """SIGKILL, for it and for what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_input()

    def close(self) -> None:
        """End it by the end of its input; kill it if it does not heed that."""
        self._close_input()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
