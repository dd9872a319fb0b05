"""A child captures the state of the moment when it was made, and does not disturb its parent."""

import asyncio
import contextlib
import errno
import mmap
import os
import signal
from pathlib import Path
from typing import IO

import pytest

from penstock.contracts.errors import Unavailable
from penstock_sequencer.custodian import fork_capture
from penstock_sequencer.custodian.fork_capture import capture_forked, capture_inline

LARGE = 5_000_000


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def oom_score() -> bytes:
    return Path("/proc/self/oom_score_adj").read_bytes()


@pytest.mark.parametrize("way", [capture_inline, capture_forked])
async def test_a_capture_has_the_written_bytes(way: fork_capture.Capture) -> None:
    def write(out: IO[bytes]) -> None:
        out.write(bytes(4) + b"x" * LARGE)
        out.seek(0)
        out.write(b"head")

    assert bytes(await way(write)) == b"head" + b"x" * LARGE


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A FIFO; opening it blocks until both ends are open."""
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


async def test_a_child_sees_the_state_at_the_fork_and_the_loop_is_not_blocked(fifo: Path) -> None:
    state = ["before"]

    def write(out: IO[bytes]) -> None:
        fifo.read_text()
        out.write(state[0].encode())

    capturing = asyncio.create_task(capture_forked(write))
    await asyncio.sleep(0)
    state[0] = "after"
    await asyncio.to_thread(fifo.write_text, "go on")
    assert bytes(await capturing) == b"before"


async def test_a_child_that_fails_reports_the_reason() -> None:
    def write(out: IO[bytes]) -> None:
        out.write(b"half of it")
        raise ValueError("cannot write more")

    with pytest.raises(Unavailable, match=r"(?s)the child that captured the state ended with 1: .*cannot write more"):
        await capture_forked(write)


async def test_a_killed_child_makes_no_capture() -> None:
    def write(out: IO[bytes]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(Unavailable, match="ended with -9"):
        await capture_forked(write)


async def test_a_cancelled_capture_leaves_no_child_and_no_descriptor(fifo: Path) -> None:
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


async def test_a_child_keeps_none_of_its_parents_connections_open() -> None:
    def write(out: IO[bytes]) -> None:
        out.write("\n".join(open_descriptors()).encode())

    reading, writing = os.pipe()
    held = set(bytes(await capture_forked(write)).decode().split())
    os.close(reading)
    os.close(writing)
    # Besides stdin, stdout and stderr: the memory, the pipe to the parent, and the folder that is being listed.
    assert len(held - {"0", "1", "2"}) == 3


async def test_the_kernel_kills_the_child_before_its_parent_when_memory_runs_out() -> None:
    def write(out: IO[bytes]) -> None:
        out.write(oom_score())

    before = oom_score()
    assert bytes(await capture_forked(write)).strip() == b"1000"
    assert oom_score() == before


REJECTED = {
    "memfd_create": "make memory",
    "pipe": "make a pipe",
    "fork": "fork",
    "pidfd_open": "watch a child",
}


def reject(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, number: int) -> None:
    def rejected(*_args: object, **_options: object) -> int:
        raise OSError(number, "rejected by the test")

    monkeypatch.setattr(owner, name, rejected)


def write_a_little(out: IO[bytes]) -> None:
    out.write(b"state")


def children() -> set[str]:
    """The child processes of this one that are not reaped, including the servers of other tests."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            if stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


@pytest.mark.parametrize("name", REJECTED)
async def test_an_error_of_the_kernel_is_retried_later_and_leaves_nothing_behind(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, others = open_descriptors(), children()
    reject(monkeypatch, os, name, errno.EAGAIN)
    with pytest.raises(Unavailable, match=f"cannot {REJECTED[name]}: rejected by the test"):
        await capture_forked(write_a_little)
    assert open_descriptors() == before
    assert children() <= others


async def test_memory_that_cannot_be_mapped_makes_no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    before, others = open_descriptors(), children()
    reject(monkeypatch, mmap, "mmap", errno.ENOMEM)
    with pytest.raises(Unavailable, match="cannot map memory: rejected by the test"):
        await capture_forked(write_a_little)
    assert open_descriptors() == before
    assert children() <= others


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
@pytest.mark.parametrize("name", REJECTED)
async def test_the_parent_captures_if_the_system_never_allows_a_child(
    name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = children()
    reject(monkeypatch, os, name, number)
    assert bytes(await capture_forked(write_a_little)) == b"state"
    assert children() <= others


async def test_a_child_that_hangs_is_killed() -> None:
    def write(out: IO[bytes]) -> None:
        signal.pause()

    before, others = open_descriptors(), children()
    with pytest.raises(Unavailable, match=r"was not done after 0\.1 s"):
        await capture_forked(write, timeout_s=0.1)
    assert open_descriptors() == before
    assert children() <= others
