"""The whole of Penstock in virtual time, under every fault that its surroundings may have: no promise is broken."""

import os
from pathlib import Path

import pytest

from tests.testkit.sim.length import LONG
from tests.testkit.sim.run import run_named, run_seed

# A seed takes less than 0.3 s of a core.
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "2000"))
SEEDS_PER_TEST = 20
# One line each: the run by its name, then why it failed once.
KNOWN = [line.split(maxsplit=1) for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()]

pytestmark = pytest.mark.simulation


def check(name: str) -> None:
    """Make one run; if it fails, say which and how to make it again first."""
    outcome = run_named(name)
    if outcome.failures:
        report = [f"seed {name}", *outcome.failures, f"make sim SEED={name}", *outcome.trace[-60:]]
        pytest.fail("\n".join(report), pytrace=False)
    assert outcome.entries, f"nothing happened with seed {name}"


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=[pytest.mark.slow] * (first > 0)) for first in range(0, SEEDS, SEEDS_PER_TEST)]
)
def test_every_promise_is_kept_whatever_fails(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        check(str(seed))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "why"), KNOWN)
def test_what_failed_once_does_not_fail_again(name: str, why: str) -> None:
    assert why, f"seed {name} stands there without a reason"
    check(name)


def test_without_faults_everything_is_acknowledged_and_nobody_waits() -> None:
    outcome = run_seed(1, length=LONG, faults=False)
    assert not outcome.failures, outcome.report()
    assert outcome.acknowledged >= 90
    assert outcome.virtual_s < 25
