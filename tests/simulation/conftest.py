"""Fixtures of the simulations' tests."""

from collections.abc import Iterator

import pytest

from tests.testkit.mutants.simulations import MutantSimulations


@pytest.fixture(scope="session")
def mutant_simulations() -> Iterator[MutantSimulations]:
    """A fork server that runs seeds under mutants."""
    simulations = MutantSimulations()
    yield simulations
    simulations.close()
