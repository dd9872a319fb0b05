"""The last words of a process: the error in its log that explains its end, never a line of ordinary work."""

import json
import os
import re
from pathlib import Path

from penstock.runtime.process.log_file import old_log

LOG_TAIL_BYTES = 16 * 1024  # read from the end of a log
_ERROR_LEVELS = ("error", "critical")
_NATS_LINE = re.compile(r"\[\d+\] \S+ \S+ \[(?P<level>[A-Z]{3})\] ?(?P<text>.*)")
_NATS_ERROR_LEVELS = ("ERR", "FTL")


class LogStart:
    """The end of a log when a process starts, to find the last words of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = _size(path)
        self._rotation = _rotation(path)

    def last_words(self) -> str:
        """The last error since the start, also if the log was emptied since."""
        if self._rotation == _rotation(self._path):
            return last_words(self._path, self._size)
        return last_words(self._path) or last_words(old_log(self._path))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _rotation(path: Path) -> int:
    """The time of the last rotation."""
    old = old_log(path)
    return old.stat().st_mtime_ns if old.exists() else 0


def last_words(path: Path, since: int = 0) -> str:
    """The last error in a log after its first `since` bytes, "" if there is none.

    An error is a line of level error, or a line that is no log line: the text of an uncaught exception.
    """
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(since if since <= size else 0, size - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((words for line in reversed(lines) if (words := _error_in(line.strip()))), "")


def _error_in(line: str) -> str:
    if found := _NATS_LINE.fullmatch(line):
        return found["text"] if found["level"] in _NATS_ERROR_LEVELS else ""
    try:
        event = json.loads(line)
    except ValueError:
        return line
    if not isinstance(event, dict):
        return line
    if event.get("level") not in _ERROR_LEVELS:
        return ""
    return ": ".join(str(event[name]) for name in ("event", "error") if event.get(name))
