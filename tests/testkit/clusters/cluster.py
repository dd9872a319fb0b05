"""A whole Penstock as a user starts it: `penstock up` in another process, for end-to-end tests and benches."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.testkit.loads.pausing import pause_process
from tests.testkit.metrics import samples, total
from tests.testkit.servers.ports import free_port

READY_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0  # of the console
LEVEL_TIMEOUT_S = 60.0
POLL_S = 0.02
OF_EACH_PROCESS = "process_start_time_seconds"  # a metric
LOG_END_CHARS = 3_000
LOG_FOLDERS: list[Path] = []  # of the servers that run now
SHAPE_FLAGS = {"--agents", "--small", "--separate", "--gateways", "--flushers", "--cachers"}


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str, poll_s: float = POLL_S) -> Any:
    """Poll until `condition` returns a true value, and return that; fail with the text `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(poll_s)


class Cluster:
    """One `penstock up` on a data folder, which tests may start and stop many times.

    It has no compactor and no janitor by default: more processes in every cluster, one of them a JVM, would slow down
    all tests. It has one agent and one sequencer by default, so that it is the same on all machines.
    """

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.kafka = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.output: list[str] = []

    @property
    def nats_url(self) -> str:
        """Where its nats-server listens, with the login."""
        lines = (self.data / "nats" / "client.env").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines)  # the client's image of the compose tests has no penstock
        user, password = found["PENSTOCK_NATS_USER"], found["PENSTOCK_NATS_PASSWORD"]
        return found["PENSTOCK_NATS_URL"].replace("//", f"//{user}:{password}@")

    @property
    def pid(self) -> int:
        """The process that is the parent of all others; it runs."""
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        """The command line that `start` runs."""
        where = ["--data", str(self.data), "--kafka", self.kafka, "--http", self.http]
        named = {argument.partition("=")[0] for argument in self._arguments}
        alone = [] if "--small" in named else ["--compactors", "0", "--janitors", "0"]
        shape = [] if named & SHAPE_FLAGS else ["--agents", "1"]
        shape += [] if {"--sequencers", "--small"} & named else ["--sequencers", "1"]
        return [sys.executable, "-m", "penstock.cli", "up", *where, *alone, *shape, *self._arguments]

    def start(self) -> None:
        """Return when `penstock up` reports ready."""
        process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._process = process
        assert process.stdout is not None
        # A full pipe would stop `penstock up` in the middle of a long test.
        self._reader = threading.Thread(target=self._keep_output, args=(process.stdout,), name="output", daemon=True)
        self._reader.start()
        wait_until(self._is_reported_ready, READY_TIMEOUT_S, "penstock to be ready")

    def _is_reported_ready(self) -> bool:
        assert self._process is not None
        assert self._reader is not None
        if self._process.poll() is not None:
            self._reader.join(STOP_TIMEOUT_S)
            raise AssertionError(f"penstock up ended: {''.join(self.output)}")
        return any("penstock is ready" in line for line in self.output)

    def _keep_output(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.output.append(line)

    def stop(self) -> int:
        """Press Ctrl-C, and return the exit code when all processes have ended."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGINT)
        code = process.wait(STOP_TIMEOUT_S)
        self._end_output()
        return code

    def close(self) -> None:
        """Stop the cluster if it still runs; kill it if it does not stop."""
        process = self._process
        if process is None:
            return
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def processes(self) -> dict[str, dict[str, Any]]:
        """The pid (None while it is down) and restarts of each process, by name: `agent-1`, `nats-server`."""
        with urllib.request.urlopen(f"http://{self.http}/processes", timeout=ANSWER_TIMEOUT_S) as answer:
            return {process["name"]: process for process in json.load(answer)}

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Wait until a child process is up, and send a signal to it."""
        wait_until(lambda: self._sent(name, number), READY_TIMEOUT_S, f"{name} to run")

    def pause(self, name: str) -> None:
        """Wait until a child process is up, and stop all its threads."""
        pause_process(self._pid(name))

    def resume(self, name: str) -> None:
        """Let the child process continue after `pause`."""
        self.kill(name, signal.SIGCONT)

    def _sent(self, name: str, number: signal.Signals) -> bool:
        pid = self._pid_now(name)
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # the process has just ended, and is started again soon
            return False
        return True

    def _pid(self, name: str) -> int:
        pid: int = wait_until(lambda: self._pid_now(name), READY_TIMEOUT_S, f"{name} to run")
        return pid

    def _pid_now(self, name: str) -> int | None:
        with contextlib.suppress(urllib.error.URLError, TimeoutError):  # a busy machine may be late
            pid: int | None = self.processes()[name]["pid"]
            return pid
        return None

    def kill_parent(self) -> None:
        """Send SIGKILL to the process that started all others; return when it has ended."""
        process = self._process
        assert process is not None
        process.kill()
        process.wait()
        self._end_output()

    def _end_output(self) -> None:
        """Close the pipe of the ended process, which its children may still have open."""
        process, reader = self._process, self._reader
        assert process is not None
        assert process.stdout is not None
        assert reader is not None
        reader.join(STOP_TIMEOUT_S)
        process.stdout.close()
        self._process, self._reader, self.output = None, None, []

    def kill_all(self) -> None:
        """Send SIGKILL to every process, first to the parent, which would restart them; return when all have ended."""
        pids = [each["pid"] for each in self.processes().values() if each["pid"] is not None]
        assert self._process is not None
        self._process.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kill_parent()
        wait_until(lambda: not any(map(_is_running, pids)), STOP_TIMEOUT_S, "all killed processes to end")

    def is_ready(self) -> bool:
        """Whether the console reports the cluster as ready."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/ready", timeout=ANSWER_TIMEOUT_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def metrics(self) -> dict[str, float]:
        """Every sample of the metrics page, by its name with labels as printed, instance labels included.

        A process without presence for seconds, or without an answer within two, is not on the page: wait for a sample.
        """
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=ANSWER_TIMEOUT_S) as answer:
            return samples(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples whose labels include `labels`; 0 while the process does not answer."""
        return total(self.metrics(), name, **labels)

    def metrics_of(self, *names: str) -> dict[str, float]:
        """The samples of one metrics page that has all these processes; wait for such a page."""

        def whole_page() -> dict[str, float]:
            found = self.metrics()
            return found if all(total(found, OF_EACH_PROCESS, instance=name) for name in names) else {}

        page: dict[str, float] = wait_until(whole_page, ANSWER_TIMEOUT_S, f"the metrics of {', '.join(names)}")
        return page

    def cpu_seconds(self) -> dict[str, float]:
        """The CPU time of each child process so far, user and system, in seconds."""
        ticks = os.sysconf("SC_CLK_TCK")
        used = {}
        for name, process in self.processes().items():
            if process["pid"] is not None:
                fields = Path(f"/proc/{process['pid']}/stat").read_text().rpartition(")")[2].split()
                used[name] = (int(fields[11]) + int(fields[12])) / ticks
        return used


def wait_for_level(cluster: Cluster, level: int) -> None:
    """Wait until the cluster has reached the level; gateways learn it from the next announcement."""

    def levels() -> list[float]:
        return [value for name, value in cluster.metrics().items() if name.startswith("penstock_sequencer_level")]

    wait_until(lambda: max(levels(), default=0) >= level, LEVEL_TIMEOUT_S, f"level {level}")


def _is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends_of_logs(folder: Path) -> str:
    """The last lines of each log in the folder."""
    logs = sorted(folder.glob("*.log"))
    return "".join(f"--- {log.name}\n{log.read_text(errors='replace')[-LOG_END_CHARS:]}\n" for log in logs)


@contextlib.contextmanager
def logs_after_failure(folder: Path) -> Iterator[None]:
    """Print the ends of the logs in the folder if the block fails. In pytest, also if a test fails meanwhile."""
    LOG_FOLDERS.append(folder)
    try:
        yield
    except BaseException:
        print(ends_of_logs(folder))
        raise
    finally:
        LOG_FOLDERS.remove(folder)


@contextlib.contextmanager
def running(data: Path, *arguments: str) -> Iterator[Cluster]:
    """A started cluster, stopped at the end; after a failure the ends of its logs are printed."""
    with contextlib.closing(Cluster(data, *arguments)) as cluster, logs_after_failure(data / "logs"):
        cluster.start()
        yield cluster
