"""The topic configuration with the replicas that clients assigned."""

import pytest

from penstock.contracts.configs.replicas import (
    REPLICAS_LENGTH_MAX,
    decoded_replicas,
    encoded_replicas,
    replicas_validation_error,
)
from penstock.contracts.levels import REPLICAS_LEVEL, level_of_changed_configs


@pytest.mark.parametrize("replicas", [((),), ((1,),), ((2147483647, 2), (), (3,)), ((), ())])
def test_replicas_read_back_as_they_were_written(replicas: tuple[tuple[int, ...], ...]) -> None:
    value = encoded_replicas(replicas)
    assert replicas_validation_error(value) == ""
    assert decoded_replicas(value) == replicas


@pytest.mark.parametrize(
    "value", ["x", "1,", ",1", "1,,2", "-1", "1 2", "99999999999", "1;2;a", "1" * REPLICAS_LENGTH_MAX]
)
def test_other_values_are_rejected_with_a_reason(value: str) -> None:
    assert replicas_validation_error(value)


def test_also_their_removal_needs_the_level_because_older_replicas_reject_the_name() -> None:
    assert level_of_changed_configs({}, ["penstock.replicas"]) == REPLICAS_LEVEL
