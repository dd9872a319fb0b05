"""Pausing of processes. It needs only the standard library, as clients in containers import it."""

import contextlib
import os
import signal
import time
from pathlib import Path

STOP_TIMEOUT_S = 60.0  # a thread that waits for the disk stops only afterwards
POLL_S = 0.001


def pause_process(pid: int) -> None:
    """Send SIGSTOP, and return when no thread of the process runs: until then it may still answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while not _is_stopped(pid):
        assert time.monotonic() < deadline_s, f"process {pid} does not stop"
        time.sleep(POLL_S)


def _is_stopped(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread ended
            if thread.read_text().rpartition(")")[2].split()[0] != "T":
                return False
    return True
