"""Runs a client in its own process, with requests over standard input: a test can kill it at any step.

Requests and answers are lines of JSON. An answer's line begins with MARK, which separates it from a library's output.
The process first writes `{"hello": {"client", "version", "library", "codecs"}}`. It answers each `{"do": NAME, ...}`
with one of `{"ok": VALUE}`, `{"error": TEXT}` and `{"not_offered": NAME}`. Before that it writes `{"at": STEP}` where a
request asks it to hold. The requests are in `clients/protocol.py`.
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
START_TIMEOUT_S = 180.0  # for Java on a busy machine
ANSWER_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 15.0
ERRORS_SHOWN_CHARACTERS = 2_000


class NotOffered(Exception):
    """The client has no such function."""


class ClientError(Exception):
    """The client reported an error, with this text."""


class Driver:
    """One running client; only one thread may use it."""

    def __init__(
        self, command: list[str], bootstrap: str, log: Path, environment: dict[str, str], login_file: Path | None = None
    ) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, bootstrap, *([str(login_file)] if login_file else [])],
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
            raise TimeoutError(f"the client gave no answer for {timeout_s:g} s{self._errors()}") from None
        if answer is None:
            raise ClientError(f"the client's process ended{self._errors()}")
        return answer

    def log(self) -> str:
        """The client's standard error so far."""
        return self._log.read_text(errors="replace")

    def _errors(self) -> str:
        text = self.log().strip()
        return f"; it wrote: {text[-ERRORS_SHOWN_CHARACTERS:]}" if text else ""

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ClientError(f"the client's process ended{self._errors()}") from None

    def ask(self, name: str, /, **arguments: Any) -> Any:
        """Send a request and return the answer; `ClientError` with the client's text, `NotOffered` without support."""
        self.begin(name, **arguments)
        return self.answer()

    def begin(self, name: str, /, **arguments: Any) -> None:
        """Send a request; `answer` takes the answer later."""
        self._send({"do": name, **arguments})

    def ask_until(self, step: str, name: str, /, **arguments: Any) -> None:
        """Send a request, and return when the client holds at `step`."""
        self._send({"do": name, "hold": step, **arguments})
        answer = self._next(ANSWER_TIMEOUT_S)
        if answer.get("at") != step:
            raise ClientError(f"the client did not reach {step!r}: {answer}")

    def resume(self) -> None:
        """Let the client continue from the step where it holds; `answer` then takes the answer."""
        self._send({"do": "go on"})

    def answer(self) -> Any:
        """Wait for the answer to the last request."""
        answer = self._next(ANSWER_TIMEOUT_S)
        if "not_offered" in answer:
            raise NotOffered(answer["not_offered"])
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer["ok"]

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close_input()

    def close(self) -> None:
        """Close the process's input, and kill the process if it does not end then."""
        self._close_input()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
