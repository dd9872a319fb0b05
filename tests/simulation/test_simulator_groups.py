"""Runs in which a group is of the protocol of KIP-848 show what is wrong with such groups."""

import itertools
from collections.abc import Iterator
from unittest import mock

import pytest

from penstock_sequencer.core.groups import consumer_group
from penstock_sequencer.core.state.consumer_group import Partitions
from tests.testkit.sim.environment.chance import Chance
from tests.testkit.sim.run import run_seed
from tests.testkit.sim.world import CONSUMER_PROTOCOL_SHARE, CONSUMER_PROTOCOL_STREAM

SEEDS_MAX = 20  # of such runs: some 70 of all

pytestmark = pytest.mark.simulation


def seeds() -> Iterator[int]:
    return (
        seed
        for seed in itertools.count()
        if Chance(seed).stream(CONSUMER_PROTOCOL_STREAM).random() < CONSUMER_PROTOCOL_SHARE
    )


@pytest.mark.slow
def test_a_machine_that_takes_silence_for_giving_back_is_caught() -> None:
    owns = consumer_group._owns

    def owns_if_it_says_so(owned: Partitions | None, partitions: Partitions) -> bool:
        return owned is not None and owns(owned, partitions)

    for seed in itertools.islice(seeds(), SEEDS_MAX):
        with mock.patch("penstock_sequencer.core.groups.consumer_group._owns", owns_if_it_says_so):
            outcome = run_seed(seed)
        if outcome.failures:
            assert "the group knows of" in outcome.failures[0], outcome.report()
            return
    pytest.fail(f"unnoticed for {SEEDS_MAX} seeds")
