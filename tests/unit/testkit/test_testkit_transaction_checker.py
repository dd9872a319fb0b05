"""The transaction checker accepts the records of correct runs and rejects every kind of wrong record."""

from collections.abc import Callable

import pytest

from tests.testkit.loads.transaction_checker import check
from tests.testkit.loads.transaction_history import History, Isolation, Outcome, Sent
from tests.unit.testkit.transaction_worlds import MUTATIONS, PLACES, World

SEEDS = 60
APPLIED_MIN = 10  # seeds to which each mutation must apply


def test_right_histories_pass() -> None:
    outcomes = set[Outcome]()
    for seed in range(SEEDS):
        history = World(seed).run()
        assert check(history) == [], f"seed {seed}"
        outcomes |= {each.outcome for each in history.transactions}
    assert outcomes == set(Outcome), "some kind of outcome never happened"


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_a_wrong_history_is_detected(mutate: Callable[[History], bool]) -> None:
    applied = 0
    for seed in range(SEEDS):
        history = World(seed).run()
        if mutate(history):
            applied += 1
            assert check(history), f"seed {seed} was not detected"
    assert applied >= APPLIED_MIN


def test_an_aborted_record_may_be_missing_if_that_is_allowed() -> None:
    history = History()
    transaction = history.begin(history.begin_life("one"))
    transaction.sent.append(Sent(PLACES[0], b"aborted", 0))
    for isolation in Isolation:
        history.read(isolation.value, isolation, PLACES).is_complete = True
    assert check(history, aborted_may_go=True) == []
    (found,) = check(history)
    assert "acknowledged and is not there" in found


def test_an_aborted_record_may_be_read_before_it_is_removed_if_that_is_allowed() -> None:
    history = History()
    transaction = history.begin(history.begin_life("one"))
    transaction.sent.append(Sent(PLACES[0], b"aborted", 0))
    first, last = (history.read(name, Isolation.UNCOMMITTED, PLACES) for name in ("first", "last"))
    first.is_complete = last.is_complete = True
    history.see(first, PLACES[0], 0, b"aborted")
    assert check(history, aborted_may_go=True) == []
    (found,) = check(history)
    assert found.startswith("last: books-0 ends before 0")


def test_a_history_with_a_value_sent_twice_cannot_be_checked() -> None:
    history = History()
    transaction = history.begin(history.begin_life("one"))
    transaction.sent += [Sent(PLACES[0], b"same"), Sent(PLACES[0], b"same")]
    with pytest.raises(ValueError, match="sent twice"):
        check(history)
