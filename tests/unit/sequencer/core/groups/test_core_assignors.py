"""Assignors: each partition has one member that subscribes it, evenly, and with as few moves as possible."""

from random import Random

import pytest

from penstock_sequencer.core.groups.assignment.assignors import ASSIGNORS, RANGE, UNIFORM, Subscriber, assign
from penstock_sequencer.core.state.consumer_group import Partitions
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from tests.unit.sequencer.core.core_world import topic_id

Subscriptions = dict[str, list[int]]  # member -> numbers of topics


def assigned(
    assignor: str,
    wanted: Subscriptions,
    counts: dict[int, int],
    before: dict[str, Partitions] | None = None,
    members_times_sets_max: int = DEFAULT_LIMITS.consumers.members_times_sets_max,
) -> dict[str, Partitions]:
    subscriptions = [[topic_id(number) for number in numbers] for numbers in wanted.values()]
    members = {name: Subscriber(name, place, (before or {}).get(name, {})) for place, name in enumerate(wanted)}
    by_id = {topic_id(number): count for number, count in counts.items()}
    return assign(assignor, members, subscriptions, by_id, members_times_sets_max)


def load(partitions: Partitions) -> int:
    return sum(len(numbers) for numbers in partitions.values())


def moves(before: dict[str, Partitions], after: dict[str, Partitions]) -> int:
    """Partitions that moved from one remaining member to another."""
    return sum(
        len({*numbers} - {*after.get(name, {}).get(topic, ())})
        for name, partitions in before.items()
        if name in after
        for topic, numbers in partitions.items()
    )


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("seed", range(40))
def test_every_partition_of_a_subscribed_topic_has_one_member_that_subscribes_it(assignor: str, seed: int) -> None:
    random = Random(seed)
    counts = {number: random.randrange(1, 9) for number in range(1, 6)}
    wanted = {f"m{each}": random.sample(range(1, 6), random.randrange(1, 6)) for each in range(random.randrange(1, 7))}
    after = assigned(assignor, wanted, counts)
    for number, count in counts.items():
        readers = [each for name in wanted for each in after[name].get(topic_id(number), ())]
        is_wanted = any(number in numbers for numbers in wanted.values())
        assert sorted(readers) == (list(range(count)) if is_wanted else [])
    for name, partitions in after.items():
        assert partitions.keys() <= {topic_id(number) for number in wanted[name]}
        assert all(numbers == sorted(numbers) != [] for numbers in partitions.values())


@pytest.mark.parametrize("seed", range(30))
def test_members_with_equal_subscriptions_differ_by_one_partition_and_moves_are_minimal(seed: int) -> None:
    random = Random(seed)
    counts = {number: random.randrange(1, 30) for number in range(1, 4)}
    total = sum(counts.values())
    names = [f"m{each}" for each in range(random.randrange(1, 9))]
    before = assigned(UNIFORM, {name: [1, 2, 3] for name in names}, counts)
    for _ in range(5):
        if len(names) > 1 and random.random() < 0.5:
            names.remove(random.choice(names))
        else:
            names.append(f"n{random.random()}")
        after = assigned(UNIFORM, {name: [1, 2, 3] for name in names}, counts, before)
        loads = [load(after[name]) for name in names]
        assert max(loads) - min(loads) <= 1
        gained = sum(max(load(after[name]) - load(before.get(name, {})), 0) for name in names)
        orphaned = sum(load(partitions) for name, partitions in before.items() if name not in names)
        assert moves(before, after) == gained - orphaned, "only new members' partitions move"
        assert sum(loads) == total
        before = after


def test_a_member_with_more_topics_leaves_shared_topics_to_the_others() -> None:
    after = assigned(UNIFORM, {"both": [1, 2], "one": [1]}, {1: 4, 2: 4})
    assert after == {"both": {topic_id(2): [0, 1, 2, 3]}, "one": {topic_id(1): [0, 1, 2, 3]}}


def test_ranges_are_contiguous_and_the_same_in_topics_of_the_same_size() -> None:
    after = assigned(RANGE, {"b": [1, 2], "a": [1, 2], "c": [1, 2]}, {1: 7, 2: 7})
    expected = {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}
    assert after == {name: {topic_id(1): numbers, topic_id(2): numbers} for name, numbers in expected.items()}


def test_without_enough_partitions_for_a_range_the_last_members_get_none() -> None:
    assert assigned(RANGE, {"a": [1], "b": [1], "c": [1]}, {1: 2})["c"] == {}


def test_with_too_many_sets_of_subscribers_partitions_are_still_all_assigned() -> None:
    wanted = {"a": [1, 2], "b": [2, 3], "c": [1, 3]}
    after = assigned(UNIFORM, wanted, {1: 4, 2: 4, 3: 4}, members_times_sets_max=0)
    assert sum(map(load, after.values())) == 12


def test_without_members_nothing_is_assigned() -> None:
    assert assigned(UNIFORM, {}, {1: 3}) == {}
