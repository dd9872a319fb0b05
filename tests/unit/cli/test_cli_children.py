"""Child processes are kept alive until they are stopped."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cli.children import Child, ChildSpec
from penstock.cli.last_words import last_words

WAITS = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)"
IGNORES_SIGTERM = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
FAILS = "import sys\nsys.exit('cannot go on')"


@asynccontextmanager
async def kept(
    tmp_path: Path, program: str, after_death: Callable[[int], Awaitable[None]] | None = None
) -> AsyncIterator[tuple[Child, list[str]]]:
    reports: list[str] = []
    spec = ChildSpec("child", [sys.executable, "-c", program], dict(os.environ), tmp_path / "child.log")
    child = Child(spec, reports.append, after_death)
    keeper = asyncio.create_task(child.keep())
    try:
        yield child, reports
    finally:
        child.kill()
        await asyncio.wait_for(keeper, 30)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


def is_up(child: Child) -> bool:
    return child.pid is not None and last_words(child.spec.log_path) == "up"


async def test_a_killed_child_is_restarted(tmp_path: Path) -> None:
    async with kept(tmp_path, WAITS) as (child, reports):
        await until(lambda: is_up(child))
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: child.restarts == 1 and child.pid is not None)
        assert child.pid != first
        assert "died (SIGKILL)" in reports[0]


async def test_a_child_has_a_group_of_its_own_in_the_session_of_its_parent(tmp_path: Path) -> None:
    async with kept(tmp_path, WAITS) as (child, _reports):
        await until(lambda: is_up(child))
        assert child.pid is not None
        assert os.getpgid(child.pid) == child.pid
        assert os.getsid(child.pid) == os.getsid(0)


async def test_a_child_that_works_again_is_reported_with_the_time_that_it_was_away(tmp_path: Path) -> None:
    async with kept(tmp_path, WAITS) as (child, reports):
        await until(lambda: is_up(child))
        assert child.pid is not None
        child.hear()
        assert reports == [], "its first start is no return"
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda: child.restarts == 1 and child.pid is not None)
        child.hear()
        child.hear()
        assert re.fullmatch(r"child died \(SIGKILL\), back after \d+\.\d s", reports[1])
        assert len(reports) == 2


async def test_a_child_that_cannot_start_is_reported_with_its_last_log_line(tmp_path: Path) -> None:
    async with kept(tmp_path, FAILS) as (child, reports):
        await until(lambda: child.restarts >= 2)
        assert "died (exit code 1): cannot go on;" in reports[0]
        assert "cannot go on" in reports[0]
        assert "0.2 s" in reports[0]
        assert "0.4 s" in reports[1]


async def test_a_stopped_child_is_not_restarted(tmp_path: Path) -> None:
    async with kept(tmp_path, WAITS) as (child, reports):
        await until(lambda: is_up(child))
        await child.stop(30)
        assert child.pid is None
        assert child.restarts == 0
        assert reports == []


@pytest.mark.parametrize("steps", range(1, 6))
async def test_a_child_that_is_stopped_during_its_start_ends(tmp_path: Path, steps: int) -> None:
    async with kept(tmp_path, WAITS) as (child, reports):
        for _ in range(steps):
            await asyncio.sleep(0)
        await asyncio.wait_for(child.stop(30), 30)
        assert child.pid is None
        assert reports == []


async def test_a_child_that_is_killed_during_its_start_ends(tmp_path: Path) -> None:
    async with kept(tmp_path, IGNORES_SIGTERM) as (child, _reports):
        await asyncio.sleep(0)
        child.kill()
    assert child.pid is None


async def test_a_child_that_is_restarted_runs_again(tmp_path: Path) -> None:
    async with kept(tmp_path, WAITS) as (child, _reports):
        await until(lambda: is_up(child))
        first = child.pid
        await child.restart(30)
        await until(lambda: child.restarts == 1 and child.pid is not None)
        assert child.pid != first


async def test_the_exit_code_of_a_child_is_reported_before_its_restart(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []

    async def hear(code: int) -> None:
        heard.append((code, child.restarts))

    async with kept(tmp_path, FAILS, hear) as (child, _reports):
        await until(lambda: child.restarts >= 2)
    assert heard[:2] == [(1, 0), (1, 1)]


async def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    async with kept(tmp_path, IGNORES_SIGTERM) as (child, reports):
        await until(lambda: is_up(child))
        await child.stop(0.05)
        assert child.pid is None
        assert "did not stop" in reports[0]


INFO = '{"event": "service_started", "level": "info"}'
FAILED = '{"event": "service_failed", "error": "no journal", "level": "error"}'


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["first"] * 5000 + ["the end", "", "  "], "the end"),
        ([INFO], ""),
        ([FAILED, INFO, INFO], "service_failed: no journal"),
        (["Traceback (most recent call last):", "KeyError: 1", INFO], "KeyError: 1"),
        (["[7] 2026/11/23 09:41:54.03 [FTL] no space", "[7] 2026/11/23 09:41:54.04 [INF] "], "no space"),
    ],
)
def test_the_last_words_of_a_process_are_its_last_error(tmp_path: Path, lines: list[str], words: str) -> None:
    log = tmp_path / "log"
    assert last_words(log) == ""
    log.write_text("\n".join([*lines, ""]))
    assert last_words(log) == words


def test_the_errors_of_an_earlier_start_are_not_the_last_words_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{FAILED}\n")
    assert last_words(log, since=len(FAILED) + 1) == ""
    assert last_words(log, since=10 * len(FAILED)) == "service_failed: no journal", "the log was renamed since"
