"""Fuzzes a new cluster, and prints a table: `make fuzz MINUTES=n SEED=n`. The exit code is 1 if it found something."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.testkit.clusters.cluster import running
from tests.testkit.fuzz.run import run_fuzzer, table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    arguments = ("--flush-ms", "20", "--separate")  # the memory is measured for each service
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "data", *arguments) as cluster:
        report = run_fuzzer(cluster, given.minutes * 60, seed)
        print(table(report))
    return int(bool(report.findings or report.late))


if __name__ == "__main__":
    sys.exit(main())
