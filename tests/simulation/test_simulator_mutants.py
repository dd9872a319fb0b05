"""The simulator finds the worst faults of services, which are mutants of `tests.testkit.mutants`."""

import pytest

from tests.testkit.mutants.runs import CONSUMER_GROUP_MUTANT, FOUND_LAST, SHORT_TIMEOUTS_MUTANT, runs_for
from tests.testkit.mutants.simulations import MutantSimulations
from tests.testkit.sim.run import run_named

pytestmark = [pytest.mark.simulation, pytest.mark.slow]


@pytest.mark.parametrize("name", FOUND_LAST)
def test_a_mutant_is_found(name: str, mutant_simulations: MutantSimulations) -> None:
    runs = runs_for(name)
    killed = mutant_simulations.first_failure(name, runs)
    assert killed is not None, f"{name} survived {len(runs)} runs"
    print(f"seed {killed.run}: {killed.failures[0]}")


def test_groups_of_the_consumer_protocol_find_two_members_with_one_partition(
    mutant_simulations: MutantSimulations,
) -> None:
    killed = mutant_simulations.first_failure(CONSUMER_GROUP_MUTANT, runs_for(CONSUMER_GROUP_MUTANT))
    assert killed is not None, "the mutant survived"
    assert "the group has assigned" in killed.failures[0], killed.report


def test_short_timeouts_find_a_gateway_that_ends_transactions_without_its_seen_sequence(
    mutant_simulations: MutantSimulations,
) -> None:
    """A delayed EndTxn can arrive after its client repeated it elsewhere and began the next transaction.

    In the protocol before KIP-890 that transaction has the same epoch. Only `seen_sequence`, the newest entry that the
    gateway knew, shows that the EndTxn belongs to the earlier transaction. Clients with long timeouts have few requests
    in flight during a delay. Hardly one of two hundred usual seeds finds this fault.

    Some of these runs fail without the mutant too: a request is delayed for longer than its client waits (ADR 0012).
    So the mutant must fail a run that passes without it.
    """
    runs = runs_for(SHORT_TIMEOUTS_MUTANT)
    while (killed := mutant_simulations.first_failure(SHORT_TIMEOUTS_MUTANT, runs)) is not None:
        if not run_named(killed.run).failures:
            break
        runs = runs[runs.index(killed.run) + 1 :]
    assert killed is not None, "no run fails because of the mutant"
    print(f"seed {killed.run}: {killed.failures[0]}")
