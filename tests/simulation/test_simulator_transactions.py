"""Runs whose transactional clients are impatient show what is wrong with requests that come late.

An EndTxn that stood still in a gateway, a sequencer or the journal comes late if its client has asked elsewhere, was
answered, and has begun the next transaction. In the protocol before KIP-890 that has the same epoch: only the journal's
sequence that the late one's gateway had seen (`seen_sequence`) tells that it means the transaction before. Clients that
wait long have few requests on their way when something stands still: of two hundred usual seeds hardly one shows it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

from penstock.contracts.commands import EndTxn
from tests.testkit.sim.run import run_seed

SEEDS_MAX = 200
IMPATIENT: dict[str, Any] = {
    "tests.testkit.sim.clients.clerk.NEW_SHARE": 0.0,
    "tests.testkit.sim.clients.transaction_wire.PATIENCES_S": (0.15, 0.5),
    "tests.testkit.sim.clients.transactions.SHARE": 1.0,
    "tests.testkit.sim.clients.transactor.DIE_SHARE": 0.0,
    "tests.testkit.sim.clients.transactor.NEW_SHARE": 0.0,
}

pytestmark = [pytest.mark.simulation, pytest.mark.slow]


@contextmanager
def impatient() -> Iterator[None]:
    """Every run has transactions of the old protocol, and clients that soon ask again elsewhere."""
    with ExitStack() as patches:
        for name, value in IMPATIENT.items():
            patches.enter_context(mock.patch(name, value))
        yield


def without_what_was_seen(**fields: Any) -> EndTxn:
    return EndTxn(**(fields | {"seen_sequence": -1}))


def test_a_gateway_that_does_not_say_what_it_had_seen_when_a_transaction_ends_is_caught() -> None:
    for seed in range(SEEDS_MAX):
        with impatient(), mock.patch("penstock_gateway.handlers.transactions.end_txn.EndTxn", without_what_was_seen):
            outcome = run_seed(seed)
        if outcome.failures:
            with impatient():
                assert not run_seed(seed).failures, "that is not why"
            return
    pytest.fail(f"unnoticed for {SEEDS_MAX} seeds")
