"""The check of producers without idempotence accepts copies of retries, and finds copies that are stale."""

import pytest

from tests.testkit.loads.plain_load import stale_copies


@pytest.mark.parametrize(
    ("log", "acknowledged"),
    [
        ([0, 1, 2], [(0, 0), (1, 1), (2, 2)]),
        ([0, 1, 1, 1, 2], [(0, 0), (2, 1), (4, 2)]),  # the client heard of the second copy only
        ([0, 1, 1, 2], [(0, 0), (1, 1), (3, 2)]),
        ([0, 1], []),
    ],
)
def test_copies_of_the_newest_value_are_right(log: list[int], acknowledged: list[tuple[int, int]]) -> None:
    assert stale_copies(enumerate(log), acknowledged) == []


def test_an_old_copy_behind_a_newer_acknowledged_value_is_found() -> None:
    (found,) = stale_copies(enumerate([1, 2, 3, 4, 5, 2]), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])
    assert found == "2 at offset 5 follows 5, which was acknowledged before it"


def test_an_old_copy_behind_a_newer_value_without_an_answer_is_right() -> None:
    """Also Kafka may store two copies whose requests are on their way at the same time in any order."""
    assert stale_copies(enumerate([1, 2, 1, 2]), [(0, 1), (3, 2)]) == []
