"""CPU time and memory of a system: the sum over all its processes, from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat after the command


def cpu_seconds(pid: int) -> dict[str, float]:
    """CPU time so far of a process and its descendants, user and system, by name."""
    used: dict[str, float] = {}
    for each in tree(pid):
        if fields := _stat(each):
            name = _name(each)
            used[name] = used.get(name, 0.0) + (int(fields[_USER]) + int(fields[_SYSTEM])) / TICKS_PER_S
    return used


def memory_mb(pid: int) -> float:
    """Resident memory in 10^6 bytes; a page that several processes share counts once (PSS)."""
    total_kib = 0
    for each in tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:  # the process has ended
            continue
        total_kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kib * 1024 / 1e6


def tree(pid: int) -> Iterator[int]:
    """A process and all its descendants that are running now."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _stat(int(folder.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(folder.name))
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += children.get(each, [])


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _name(pid: int) -> str:
    """The module of a Python process, or the name of the program."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return ""
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return Path(words[0]).name
