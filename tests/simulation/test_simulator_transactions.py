"""Runs whose transactional clients are impatient show what is wrong with requests that come late.

An EndTxn that stood still in a gateway, a sequencer or the journal comes late if its client has asked elsewhere, was
answered, and has begun the next transaction. In the protocol before KIP-890 that has the same epoch: only the journal's
sequence that the late one's gateway had seen (`seen_sequence`) tells that it means the transaction before. Clients that
wait long have few requests on their way when something stands still: of two hundred usual seeds hardly one shows it.
"""

from typing import Any
from unittest import mock

import pytest

from penstock.contracts.commands import EndTxn
from tests.testkit.sim.length import IMPATIENT_SUFFIX
from tests.testkit.sim.run import run_named

SEEDS_MAX = 200

pytestmark = [pytest.mark.simulation, pytest.mark.slow]


def without_what_was_seen(**fields: Any) -> EndTxn:
    return EndTxn(**(fields | {"seen_sequence": -1}))


def test_a_gateway_that_does_not_say_what_it_had_seen_when_a_transaction_ends_is_caught() -> None:
    for seed in range(SEEDS_MAX):
        name = f"{seed}{IMPATIENT_SUFFIX}"
        with mock.patch("penstock_gateway.handlers.transactions.end_txn.EndTxn", without_what_was_seen):
            outcome = run_named(name)
        if outcome.failures:
            assert not run_named(name).failures, "that is not why"
            return
    pytest.fail(f"unnoticed for {SEEDS_MAX} seeds")
