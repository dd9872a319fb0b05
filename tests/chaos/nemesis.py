"""Kills and pauses processes by a plan: the plan comes from a seed, and `Nemesis` runs it."""

import contextlib
import os
import random
import signal
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.loads.pausing import pause_process

# The number of processes of each kind. An agent is gateway, flusher and cacher in one, which die and pause together.
SHAPES = {
    "separate": {"sequencer": 3, "gateway": 2, "flusher": 2, "cacher": 2},
    "agents": {"sequencer": 3, "agent": 2},
}
SHAPES_RUN = (os.environ.get("PENSTOCK_CHAOS_SHAPE") or " ".join(SHAPES)).split()
BETWEEN_S = (1.0, 5.0)
PAUSE_S = (1.0, 30.0)
LONG_PAUSE_S = 60.0
RUNNING_TIMEOUT_S = 60.0


class Act(NamedTuple):
    """One fault, `at_s` after the start: a process is paused for `pause_s`, or killed if that is 0."""

    at_s: float
    victim: str
    pause_s: float

    def __str__(self) -> str:
        what = f"pause {self.victim} for {self.pause_s:.1f} s" if self.pause_s else f"kill {self.victim}"
        return f"{self.at_s:7.1f} s  {what}"


def flags(shape: str) -> list[str]:
    """The flags of `penstock up` for the processes of a shape."""
    return [part for kind, count in SHAPES[shape].items() for part in (f"--{kind}s", str(count))]


def victims(shape: str) -> list[str]:
    """The names of all processes of a shape, sequencers first."""
    counts = SHAPES[shape].items()
    return [f"{kind}-{number}" for kind, count in counts for number in range(1, count + 1)] + ["nats-server"]


def plan(seed: int, duration_s: float, shape: str) -> list[Act]:
    """A plan in rounds: each round kills and pauses every process once. One sequencer is paused for a minute."""
    chance = random.Random(seed)
    names = victims(shape)
    slowness = len(victims("separate")) / len(names)  # so that a process has as many faults in each shape
    long = Act(chance.uniform(0, duration_s / 2), chance.choice(names[: SHAPES[shape]["sequencer"]]), LONG_PAUSE_S)
    acts = [long]
    at_s = 0.0
    for victim, is_pause in _rounds(chance, names):
        at_s += chance.uniform(*BETWEEN_S) * slowness
        if at_s > duration_s:
            return sorted(acts)
        is_in_long_pause = victim == long.victim and long.at_s <= at_s < long.at_s + LONG_PAUSE_S
        if not is_in_long_pause:
            acts.append(Act(at_s, victim, chance.uniform(*PAUSE_S) if is_pause else 0.0))
    raise AssertionError("rounds never end")


def _rounds(chance: random.Random, names: list[str]) -> Iterator[tuple[str, bool]]:
    every = [(victim, is_pause) for victim in names for is_pause in (False, True)]
    while True:
        yield from chance.sample(every, len(every))


class Nemesis:
    """Runs a plan; at the end no process is paused."""

    def __init__(self, cluster: Cluster) -> None:
        self.killed: Counter[str] = Counter()
        self.paused: Counter[str] = Counter()
        self._cluster = cluster
        self._paused: dict[str, tuple[int, float]] = {}  # by name: process id, time to resume
        self._started_s = time.monotonic()

    def carry_out(self, acts: list[Act]) -> None:
        """Run all acts; return when all processes run again."""
        for act in acts:
            self._until(act.at_s)
            print(act, flush=True)
            self._do(act)
        while self._paused:
            self._until(min(resume_s for _, resume_s in self._paused.values()))

    def end(self) -> None:
        """Resume all paused processes now."""
        for name in list(self._paused):
            self._resume(name)

    def _now_s(self) -> float:
        return time.monotonic() - self._started_s

    def _until(self, at_s: float) -> None:
        """Wait until `at_s`, and resume processes whose pause ends before it."""

        def is_due() -> bool:
            for name, (_, resume_s) in list(self._paused.items()):
                if resume_s <= self._now_s():
                    self._resume(name)
            return self._now_s() >= at_s

        wait_until(is_due, max(at_s - self._now_s(), 0) + RUNNING_TIMEOUT_S, f"second {at_s:g}")

    def _do(self, act: Act) -> None:
        pid = wait_until(lambda: self._pid(act.victim), RUNNING_TIMEOUT_S, f"{act.victim} to run")
        if act.pause_s:
            pause_process(pid)
            self._paused[act.victim] = (pid, self._now_s() + act.pause_s)
            self.paused[act.victim] += 1
        else:
            os.kill(pid, signal.SIGKILL)
            self._paused.pop(act.victim, None)
            self.killed[act.victim] += 1

    def _pid(self, name: str) -> int | None:
        with contextlib.suppress(urllib.error.URLError, TimeoutError):
            pid: int | None = self._cluster.processes()[name]["pid"]
            return pid
        return None

    def _resume(self, name: str) -> None:
        pid, _ = self._paused.pop(name)
        with contextlib.suppress(ProcessLookupError):  # it ended while it was paused
            os.kill(pid, signal.SIGCONT)
