"""Promises of the judge of transactions: right histories pass, and no kind of wrong one does."""

from collections.abc import Callable

import pytest

from tests.testkit.loads.transaction_checker import check
from tests.testkit.loads.transaction_history import History, Isolation, Outcome, Sent
from tests.unit.testkit.transaction_worlds import MUTATIONS, PLACES, World

SEEDS = 60
APPLIED_MIN = 10  # of them, in which there is what a mutation needs


def test_right_histories_pass() -> None:
    outcomes = set[Outcome]()
    for seed in range(SEEDS):
        history = World(seed).run()
        assert check(history) == [], f"seed {seed}"
        outcomes |= {each.outcome for each in history.transactions}
    assert outcomes == set(Outcome), "all kinds of ends are in them"


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_a_wrong_history_is_found_out(mutate: Callable[[History], bool]) -> None:
    applied = 0
    for seed in range(SEEDS):
        history = World(seed).run()
        if mutate(history):
            applied += 1
            assert check(history), f"seed {seed} went unnoticed"
    assert applied >= APPLIED_MIN


def test_what_is_aborted_may_be_gone_where_that_is_allowed() -> None:
    history = History()
    transaction = history.begin(history.begin_life("one"))
    transaction.sent.append(Sent(PLACES[0], b"aborted", 0))
    for isolation in Isolation:
        history.read(isolation.value, isolation, PLACES).is_complete = True
    assert check(history, aborted_may_go=True) == []
    (found,) = check(history)
    assert "acknowledged and is not there" in found


def test_what_is_aborted_may_be_seen_before_it_is_gone_where_that_is_allowed() -> None:
    history = History()
    transaction = history.begin(history.begin_life("one"))
    transaction.sent.append(Sent(PLACES[0], b"aborted", 0))
    first, last = (history.read(name, Isolation.UNCOMMITTED, PLACES) for name in ("first", "last"))
    first.is_complete = last.is_complete = True
    history.see(first, PLACES[0], 0, b"aborted")
    assert check(history, aborted_may_go=True) == []
    (found,) = check(history)
    assert found.startswith("last: books-0 ends before 0")


def test_a_value_must_be_sent_once_for_a_history_to_be_judged() -> None:
    history = History()
    transaction = history.begin(history.begin_life("one"))
    transaction.sent += [Sent(PLACES[0], b"same"), Sent(PLACES[0], b"same")]
    with pytest.raises(ValueError, match="sent twice"):
        check(history)
