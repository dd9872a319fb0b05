"""Processes that stand still; it needs nothing that clients in containers do not have."""

import contextlib
import os
import signal
import time
from pathlib import Path

STOP_TIMEOUT_S = 60.0  # a thread that waits for the disk stops after that
POLL_S = 0.001


def pause_process(pid: int) -> None:
    """SIGSTOP, and return when no thread of it runs: until then it may still answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while not _is_stopped(pid):
        assert time.monotonic() < deadline_s, f"process {pid} does not stop"
        time.sleep(POLL_S)


def _is_stopped(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if thread.read_text().rpartition(")")[2].split()[0] != "T":
                return False
    return True
