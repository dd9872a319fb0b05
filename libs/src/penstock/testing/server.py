"""A `penstock up --small` in another process, for the length of a test run."""

import atexit
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.clock import Entropy, SystemEntropy

PARENT_VARIABLE = "PENSTOCK_PARENT_PID"  # the server stops when this process dies, on Linux
OUTPUT_LINES = 50  # of the server's last ones, for errors
TOPIC_ENTROPY_BYTES = 5
_READY = re.compile(r"penstock is ready: kafka on (?P<kafka>\S+?)(,|$)")
_CONSOLE = re.compile(r"console on (?P<url>\S+?),")


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a server may take."""

    # A machine that runs many tests at once is slow.
    ready_s: float = 60.0
    # A server that drains for longer is killed.
    stop_s: float = 30.0


DEFAULT_LIMITS = ServerLimits()


class PenstockServer:
    """One server with free ports, and its topics.

    It is as durable as every Penstock: stopped and started again on the same folder, it has all records.
    """

    def __init__(
        self, data: Path, *arguments: str, entropy: Entropy | None = None, limits: ServerLimits = DEFAULT_LIMITS
    ) -> None:
        """`data` is the folder of the server, `arguments` are more flags of `penstock up`."""
        self._command = [
            *(sys.executable, "-m", "penstock.cli", "up", "--small", "--data", str(data)),
            *("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments),
        ]
        self._entropy = entropy or SystemEntropy()
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._output: deque[str] = deque(maxlen=OUTPUT_LINES)
        self._is_decided = threading.Event()  # the server is ready, or has ended
        self._bootstrap_servers = ""
        self._console_url = ""

    @property
    def bootstrap_servers(self) -> str:
        """The address for Kafka clients; another one after each start."""
        assert self._bootstrap_servers, "the server does not run"
        return self._bootstrap_servers

    @property
    def console_url(self) -> str:
        """The address of the console, for a debugger's stop."""
        assert self._console_url, "the server does not run"
        return self._console_url

    @property
    def pid(self) -> int | None:
        """The process; None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> Self:
        """Return when clients are served; `Unavailable` with the server's own words if it does not start.

        Call it in a thread that lives as long as the server, such as the main one: Linux stops the server with it.
        """
        assert self.pid is None, "the server runs already"
        self._is_decided.clear()
        self._output.clear()
        self._process = process = subprocess.Popen(
            self._command,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # Ctrl-C ends the tests first, and their end stops the server
        )
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), name="penstock-output", daemon=True)
        self._reader.start()
        atexit.register(self.kill)
        decided = self._is_decided.wait(self._limits.ready_s)
        if self._console_url:
            return self
        self.kill()
        problem = "ended" if decided else f"is not ready after {self._limits.ready_s:g} s"
        raise Unavailable(f"penstock {problem}: {' '.join(self._output) or 'it printed nothing'}")

    def stop(self) -> None:
        """Stop the server as Ctrl-C does; kill it if it does not stop."""
        if self._process is not None and self.pid is not None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self._limits.stop_s)
        self.kill()

    def kill(self) -> None:
        """End the server now, if it runs. All acknowledged records are kept."""
        if self._process is None:
            return
        self._process.kill()  # does nothing after its end
        self._process.wait()
        if self._reader is not None:
            self._reader.join(self._limits.stop_s)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._bootstrap_servers = self._console_url = ""
        self._process = None
        atexit.unregister(self.kill)

    def create_topic(
        self, name: str = "", *, partitions: int = 1, configs: Mapping[str, str] | None = None, prefix: str = "test"
    ) -> str:
        """Create a topic, and return its name; without `name` it is a new one that begins with `prefix`."""
        name = name or f"{prefix}-{self._entropy.take(TOPIC_ENTROPY_BYTES).hex()}"
        options = {"num_partitions": partitions, "configs": dict(configs or {})}
        with self._admin(f"topic {name!r} is not created") as admin:
            _check(admin.create_topics({name: options}, raise_errors=False), f"topic {name!r} is not created")
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all records."""
        with self._admin(f"topic {name!r} is not deleted") as admin:
            _check(admin.delete_topics([name], raise_errors=False), f"topic {name!r} is not deleted")

    @contextlib.contextmanager
    def _admin(self, problem: str) -> Iterator[Any]:
        """A client; its error becomes `Invalid` with a sentence."""
        with warnings.catch_warnings():  # of its modules, which a test run may turn into errors
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka.admin import KafkaAdminClient  # slow, and clients of other libraries do not need it
            from kafka.errors import KafkaError

            try:
                admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
                with contextlib.closing(admin):
                    yield admin
            except KafkaError as error:
                raise Invalid(f"{problem}: {error}") from error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._output.append(line.strip())
            if found := _READY.search(line):
                self._bootstrap_servers = found["kafka"]
            if found := _CONSOLE.search(line):
                self._console_url = found["url"]
                self._is_decided.set()
        self._is_decided.set()


def _check(answer: Any, problem: str) -> None:
    """`Invalid` with the words of the server if a topic in its answer has an error."""
    from penstock.cli.kafka.session import check_ok

    for topic in answer["topics"]:
        check_ok(topic["error_code"], topic.get("error_message"), problem)
