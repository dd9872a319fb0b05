"""A log file stays within its limit while its process runs, and no line is lost."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import structlog

from penstock.cli.children import Child, ChildLimits, ChildSpec
from penstock.cli.last_words import LogStart
from penstock.runtime.process.log_file import LogFile, log_file_of, old_log
from penstock.runtime.process.logs import configure_logs
from tests.testkit.waiting import until

LINE_BYTES = 110  # more than each line below has
LIMIT_BYTES = 100 * LINE_BYTES
SERVICE = """
import os, structlog, time
from penstock.runtime.process.log_file import log_file_of
from penstock.runtime.process.logs import configure_logs
configure_logs("gateway", "gateway-1", "info", "json", log_file=log_file_of(os.environ))
log = structlog.get_logger()
for number in range(1000):
    log.info("work", number=number)
log.error("last", error="no room")
while True: time.sleep(60)
"""


def numbers(*paths: Path) -> list[int]:
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [line["number"] for line in lines if "number" in line]


def size_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir())


def log_lines(path: Path, first: int, count: int) -> None:
    with path.open("a") as stream:
        configure_logs("s", "i", "info", "json", stream, log_file=LogFile(path, LIMIT_BYTES))
        for number in range(first, first + count):
            structlog.get_logger().info("work", number=number)


def test_a_full_log_is_emptied_and_its_lines_are_in_one_old_log(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    log_lines(path, 0, 1_000)
    kept = numbers(old_log(path), path)
    assert kept == list(range(kept[0], 1_000))
    assert 100 < len(kept) < 300
    assert max(each.stat().st_size for each in tmp_path.iterdir()) <= LIMIT_BYTES
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gateway.log", "gateway.old.log"]


def test_what_a_child_writes_to_the_same_file_counts_and_follows(tmp_path: Path) -> None:
    path = tmp_path / "compactor.log"
    with path.open("ab", buffering=0) as of_child:
        of_child.write(b"x" * LIMIT_BYTES + b"\n")
        log_lines(path, 0, 1)
        of_child.write(b'{"number": 7}\n')
    assert numbers(path) == [0, 7]
    assert old_log(path).stat().st_size == LIMIT_BYTES + 1


def test_a_log_that_cannot_be_emptied_grows_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    in_the_way = old_log(path) / "file"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    with path.open("a") as stream:
        configure_logs("s", "i", "info", "json", stream, log_file=LogFile(path, LIMIT_BYTES))
        for number in range(400):
            structlog.get_logger().info("work", number=number)
        assert numbers(path) == list(range(400))
        assert not path.with_suffix(".unfinished.log").exists()
        in_the_way.unlink()
        in_the_way.parent.rmdir()
        for number in range(400, 430):
            structlog.get_logger().info("work", number=number)
    assert numbers(old_log(path), path) == list(range(430))
    assert path.stat().st_size <= LIMIT_BYTES


def test_without_the_setting_of_the_supervisor_there_is_no_limit() -> None:
    assert log_file_of({}) is None


def test_the_last_words_are_found_in_a_log_that_was_emptied_since_the_start(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    path.write_text("an error of an earlier start\n")
    start = LogStart(path)
    assert start.last_words() == ""
    path.write_text("the error before the log was full\n" + "{}\n" * 10)
    LogFile(path, 1).make_room(1)
    assert start.last_words() == "the error before the log was full"
    path.write_text("the last error\n" + "{}\n" * 100)
    assert start.last_words() == "the last error"


async def test_a_killed_service_leaves_bounded_logs_and_its_last_words(tmp_path: Path) -> None:
    spec = ChildSpec("gateway-1", [sys.executable, "-c", SERVICE], dict(os.environ), tmp_path / "gateway-1.log", True)
    reports: list[str] = []
    child = Child(spec, reports.append, limits=ChildLimits(log_bytes_max=LIMIT_BYTES))
    keeping = asyncio.create_task(child.keep())
    try:
        await until(lambda: spec.log_path.exists() and b"no room" in spec.log_path.read_bytes())
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda: child.restarts == 1)
    finally:
        child.kill()
        await keeping
    assert "died (SIGKILL): last: no room;" in reports[0]
    assert size_bytes(tmp_path) <= 3 * LIMIT_BYTES
