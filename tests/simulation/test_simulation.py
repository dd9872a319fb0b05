"""The whole of Penstock in virtual time, under every fault that its surroundings may have: no promise is broken."""

import os
from pathlib import Path

import pytest

from tests.testkit.sim.run import run_seed

# A seed takes about half a second of a core: more would leave CI too little room. `make sim-all` runs 2,000.
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "500"))
SEEDS_PER_TEST = 20
# One line each: the seed, then why it failed once.
KNOWN = [line.split(maxsplit=1) for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()]

pytestmark = pytest.mark.simulation


def check(seed: int) -> None:
    """Run one seed; if it fails, say which and how to run it again first."""
    outcome = run_seed(seed)
    if outcome.failures:
        report = [f"seed {seed}", *outcome.failures, f"make sim SEED={seed}", *outcome.trace[-60:]]
        pytest.fail("\n".join(report), pytrace=False)
    assert outcome.entries, f"nothing happened with seed {seed}"


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=[pytest.mark.slow] * (first > 0)) for first in range(0, SEEDS, SEEDS_PER_TEST)]
)
def test_every_promise_is_kept_whatever_fails(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "why"), KNOWN)
def test_what_failed_once_does_not_fail_again(seed: str, why: str) -> None:
    assert why, f"seed {seed} stands there without a reason"
    check(int(seed))


def test_without_faults_everything_is_acknowledged_and_nobody_waits() -> None:
    outcome = run_seed(1, faults=False)
    assert not outcome.failures, outcome.report()
    assert outcome.acknowledged >= 90
    assert outcome.virtual_s < 25
