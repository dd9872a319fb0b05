"""Bounds a log file to which this process and its children append: a full one is copied to one old file and emptied.

The file itself stays, because the children have it open too. If the process is killed meanwhile, each line is still in
one of the two files.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

LOG_FILE_VARIABLE = "PENSTOCK_LOG_FILE"
LOG_BYTES_VARIABLE = "PENSTOCK_LOG_BYTES_MAX"
RETRY_PARTS = 8  # a file that could not be emptied is tried again when it has grown by this part of the limit


def old_log(path: Path) -> Path:
    """The file with the content before the last rotation."""
    return path.with_suffix(".old.log")


class LogFile:
    """A log file and its limit."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._full_bytes = bytes_max

    def make_room(self, line_bytes: int) -> None:
        """Empty the file if a line of this size does not fit. On a full disk that is tried again later."""
        size_bytes = 0
        try:
            size_bytes = os.stat(self._path).st_size
            if size_bytes > 0 and size_bytes + line_bytes > self._full_bytes:
                self._rotate()
                self._full_bytes = self._bytes_max
        except BlockingIOError:
            return  # another process empties it now
        except OSError:
            self._full_bytes = size_bytes + self._bytes_max // RETRY_PARTS

    def _rotate(self) -> None:
        unfinished = self._path.with_suffix(".unfinished.log")
        with self._path.open("r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                with unfinished.open("wb") as copy:
                    shutil.copyfileobj(log, copy)
                    copy.flush()
                    unfinished.replace(old_log(self._path))
                    shutil.copyfileobj(log, copy)  # the lines that a child has written since
            except OSError:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
                raise
            log.truncate(0)


def log_file_of(environ: Mapping[str, str]) -> LogFile | None:
    """The log file that `penstock up` names to a process that it starts."""
    path = environ.get(LOG_FILE_VARIABLE)
    return LogFile(Path(path), int(environ[LOG_BYTES_VARIABLE])) if path else None
