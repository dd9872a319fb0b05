"""All of Penstock in virtual time, with every fault that its environment may have: all guarantees hold."""

import os
from pathlib import Path

import pytest

from tests.testkit.sim.length import LONG, NEIGHBOUR_SUFFIX
from tests.testkit.sim.run import run_named, run_seed

# A seed takes about half a second of a core.
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "200"))
SEEDS_PER_TEST = 20
NEIGHBOUR_SEEDS = SEEDS // 150  # each takes 1.5 seconds
# Each line: the name of a run, and why it failed once.
KNOWN = [line.split(maxsplit=1) for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()]

pytestmark = pytest.mark.simulation


def check(name: str) -> None:
    """Make one run; a failure report begins with its name and the command that repeats it."""
    outcome = run_named(name)
    if outcome.failures:
        report = [f"seed {name}", *outcome.failures, f"make sim SEED={name}", *outcome.trace[-60:]]
        pytest.fail("\n".join(report), pytrace=False)
    assert outcome.entries, f"nothing happened with seed {name}"


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=[pytest.mark.slow] * (first > 0)) for first in range(0, SEEDS, SEEDS_PER_TEST)]
)
def test_all_guarantees_hold_under_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        check(str(seed))


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=[pytest.mark.slow] * (first > 0)) for first in range(0, NEIGHBOUR_SEEDS, 2)]
)
def test_two_virtual_clusters_on_the_same_sequencers_keep_their_guarantees_and_share_nothing(first: int) -> None:
    for seed in range(first, first + 2):
        check(f"{seed}{NEIGHBOUR_SUFFIX}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "why"), KNOWN)
def test_a_run_that_failed_once_does_not_fail_again(name: str, why: str) -> None:
    assert why, f"seed {name} has no reason in seeds.txt"
    check(name)


def test_without_faults_all_batches_are_acknowledged_soon() -> None:
    outcome = run_seed(1, length=LONG, faults=False)
    assert not outcome.failures, outcome.report()
    assert outcome.acknowledged >= 90
    assert outcome.virtual_s < 25
