"""A load: a process with Kafka clients that runs until it is closed, and reports what it has done.

The process gets a `Start` as JSON in its first argument. It prints "ready" after its first record is through. Then it
answers each line on its standard input with one line of JSON: the figures since the answer before. It ends when its
standard input ends, so it never outlives the process that started it.
"""

import contextlib
import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Literal

import msgspec

from benches.kafka.loads import java

READY_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
LOG_CHARACTERS = 3_000


class LoadFailed(Exception):
    """A load has ended or does not answer; the text is the end of its output."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of load; fields that a client does not have are ignored."""

    client: Literal["java", "librdkafka", "raw"]
    kind: Literal["produce", "consume", "latency"]
    clients: int = 1  # producers, consumers, or raw connections, in one process
    record_bytes: int = 1_024
    batch_bytes: int = 0  # raw
    in_flight: int = 5  # requests of a raw connection, as many as a stock producer has
    mib_per_second: float = 0  # raw; 0: no limit
    records_per_second: float = 0  # latency
    random_keys: bool = False
    is_tailing: bool = False  # begins at the end; otherwise it reads everything, again and again
    settings: dict[str, str] = {}


class Start(msgspec.Struct, frozen=True):
    """The argument of a load's process."""

    load: Load
    bootstrap: str
    topic: str
    partitions: int


class Counts(msgspec.Struct, frozen=True):
    """The figures of a load since its last report. MiB are those of values; a raw client counts whole batches."""

    seconds: float
    mib: float
    records: float
    p50_ms: float = 0
    p99_ms: float = 0


class Running:
    """A running load."""

    def __init__(self, start: Start) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [*_command(start.load), msgspec.json.encode(start).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def wait_until_ready(self) -> None:
        """Return after the first record."""
        line = self._line(READY_TIMEOUT_S)
        assert line == "ready", f"unexpected output of a load: {line}"

    def report(self) -> Counts:
        """The figures since the last report."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return msgspec.convert(json.loads(self._line(ANSWER_TIMEOUT_S)), Counts)

    def close(self) -> None:
        """Stop the load, also one that has failed."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _line(self, timeout_s: float) -> str:
        output = self._process.stdout
        assert output is not None
        readable, _, _ = select.select([output], [], [], timeout_s)
        line = output.readline().strip() if readable else ""
        if not line:
            self._errors.seek(0)
            raise LoadFailed(
                f"a load failed or did not answer in {timeout_s:g} s: {self._errors.read()[-LOG_CHARACTERS:]}"
            )
        return line


@contextlib.contextmanager
def running(start: Start) -> Iterator[Running]:
    """A load that has sent or received its first record, stopped at the end."""
    load = Running(start)
    try:
        load.wait_until_ready()
        yield load
    finally:
        load.close()


def _command(load: Load) -> list[str]:
    match load.client, load.kind:
        case "java", _:
            return java.command()
        case "librdkafka", "produce":
            return [sys.executable, "-m", "benches.kafka.loads.librdkafka"]
        case "raw", "produce":
            return [sys.executable, "-m", "benches.kafka.loads.raw_produce"]
        case "raw", "consume":
            return [sys.executable, "-m", "benches.kafka.loads.raw_fetch"]
    raise ValueError(f"no load {load.client} {load.kind}")
