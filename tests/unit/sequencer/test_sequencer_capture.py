"""A state captured by a child: as it was when the child was made, and the parent none the worse for it."""

import asyncio
import os
import signal
from pathlib import Path
from typing import IO

import pytest

from penstock.contracts.errors import Unavailable
from sequencer import capture
from sequencer.capture import capture_forked, capture_inline

LARGE = 5_000_000


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("way", [capture_inline, capture_forked])
async def test_what_is_written_is_what_is_captured(way: capture.Capture) -> None:
    def write(out: IO[bytes]) -> None:
        out.write(bytes(4) + b"x" * LARGE)
        out.seek(0)
        out.write(b"head")

    assert bytes(await way(write)) == b"head" + b"x" * LARGE


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Opened at both ends or not at all."""
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


async def test_a_child_sees_the_state_of_the_moment_in_which_it_was_made_and_the_loop_goes_on(fifo: Path) -> None:
    state = ["before"]

    def write(out: IO[bytes]) -> None:
        fifo.read_text()
        out.write(state[0].encode())

    capturing = asyncio.create_task(capture_forked(write))
    await asyncio.sleep(0)
    state[0] = "after"
    await asyncio.to_thread(fifo.write_text, "go on")
    assert bytes(await capturing) == b"before"


async def test_a_child_that_fails_says_why() -> None:
    def write(out: IO[bytes]) -> None:
        out.write(b"half of it")
        raise ValueError("no more of it")

    with pytest.raises(Unavailable, match=r"(?s)the child that captured the state ended with 1: .*no more of it"):
        await capture_forked(write)


async def test_a_child_that_is_killed_is_no_capture() -> None:
    def write(out: IO[bytes]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Unavailable, match="ended with -9"):
        await capture_forked(write)


async def test_a_capture_that_is_given_up_leaves_no_child_and_no_descriptor(fifo: Path) -> None:
    def write(out: IO[bytes]) -> None:
        fifo.write_text(str(os.getpid()))
        signal.pause()

    before = open_descriptors()
    capturing = asyncio.create_task(capture_forked(write))
    await asyncio.sleep(0)
    child = int(await asyncio.to_thread(fifo.read_text))
    capturing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await capturing
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert open_descriptors() == before


async def test_a_child_holds_none_of_its_parents_connections() -> None:
    def write(out: IO[bytes]) -> None:
        out.write("\n".join(open_descriptors()).encode())

    reading, writing = os.pipe()
    held = set(bytes(await capture_forked(write)).decode().split())
    os.close(reading)
    os.close(writing)
    # beside stdin, stdout and stderr: the memory, the way to the parent, and the folder that is being listed
    assert len(held - {"0", "1", "2"}) == 3


async def test_without_a_child_there_is_no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "too many processes")

    before = open_descriptors()
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(Unavailable, match="cannot fork: too many processes"):
        await capture_forked(lambda out: None)
    assert open_descriptors() == before
