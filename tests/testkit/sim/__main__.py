"""Runs single seeds again and prints the whole trace: `make sim SEED=n`."""

import sys

from tests.testkit.sim.run import run_named


def main() -> int:
    """Print the whole trace and the outcome of each run named on the command line; 1 if one failed."""
    has_failed = False
    if len(sys.argv) == 1:
        sys.exit('name the runs: SEED=7, SEED="7 8", SEED=7-long for the long run of a seed, or SEED=7-clusters')
    for argument in sys.argv[1:]:
        print(f"seed {argument}", flush=True)
        outcome = run_named(argument, keep_trace=True)
        print("\n".join(outcome.trace))
        print(outcome.report())
        has_failed = has_failed or bool(outcome.failures)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
