"""Runs the tests under each mutant, and reports which tests kill it: `make mutants`.

A few runs of the simulator come first if it found the mutant before: they take seconds. The tests of the mutant's area
follow if no run fails, and then more runs.
The exit code is 1 if a mutant survives, or if its tests could not run.
"""

import argparse
import os
import queue
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.testkit.mutants.catalog import AREAS, MUTANTS, TESTS
from tests.testkit.mutants.runs import CLUSTERS_FOUND_LAST, FOUND_LAST, runs_for
from tests.testkit.mutants.simulations import Killed, MutantSimulations

ROOT = Path(__file__).parents[3]
RUNS_FIRST = 15  # before the tests of the area
FAILURES_MAX = 3  # after so many, a mutant is dead
TESTS_TIMEOUT_S = 300.0
PASSED, FAILED = 0, 1  # exit codes of pytest
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """The tests that kill a mutant; none if it survives."""

    name: str
    killers: list[str]
    seconds: float
    error: str = ""  # why its tests could not run


def first_tests(name: str) -> tuple[str, ...]:
    """The tests that run first under a mutant."""
    area = next(area for area, mutants in AREAS.items() if any(each.name == name for each in mutants))
    return MUTANTS[name].tests or TESTS[area]


def sweep(name: str, simulations: MutantSimulations) -> Result:
    """Run the tests under one mutant, until one of them kills it."""
    started_s = time.monotonic()

    def result(killers: list[str], error: str = "") -> Result:
        return Result(name, killers, time.monotonic() - started_s, error)

    runs = runs_for(name)
    killed = simulations.first_failure(name, runs[:RUNS_FIRST]) if name in FOUND_LAST | CLUSTERS_FOUND_LAST else None
    if killed is not None:
        return result([_repeat(killed)])
    pytest = [sys.executable, "-m", "pytest", "-q", f"--maxfail={FAILURES_MAX}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "tests.testkit.mutants", name, "--", *pytest, *first_tests(name)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TESTS_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return result([f"{' '.join(first_tests(name))} (without an end)"])
    killers = FAILED_TEST.findall(done.stdout)
    if done.returncode == FAILED and killers:
        return result(killers)
    if done.returncode != PASSED:
        return result([], f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-2_000:]}")
    killed = simulations.first_failure(name, runs)
    return result([] if killed is None else [_repeat(killed)])


def _repeat(killed: Killed) -> str:
    return f"make sim SEED={killed.run}: {killed.failures[0]}"


def main(arguments: list[str]) -> int:
    """Sweep over all mutants, or those that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MUTANT")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in MUTANTS]
    if unknown:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    started_s = time.monotonic()
    names = options.names or list(MUTANTS)
    idle: queue.Queue[MutantSimulations] = queue.Queue()
    servers = [MutantSimulations() for _ in range(options.jobs)]
    for server in servers:
        idle.put(server)

    def work(name: str) -> Result:
        server = idle.get()
        try:
            return sweep(name, server)
        finally:
            idle.put(server)

    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(work, name) for name in names]):
            done = future.result()
            print(f"{'killed' if done.killers else 'SURVIVED'} {done.name} ({done.seconds:.0f} s)", flush=True)
            for line in done.killers or [done.error or "no test failed"]:
                print(f"    {line}", flush=True)
            if not done.killers:
                survivors.append(done.name)
    for server in servers:
        server.close()
    minutes = (time.monotonic() - started_s) / 60
    print(f"{len(names) - len(survivors)} of {len(names)} mutants killed in {minutes:.1f} minutes")
    if survivors:
        print(f"survived: {', '.join(survivors)}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
