"""Near the delivery limit a share group gets fewer records at once, and at its last delivery a record alone."""

import pytest

from penstock.contracts.commands import AcknowledgeType, OffsetRange, RaiseLevel
from penstock.contracts.levels import THROTTLED_DELIVERIES_LEVEL
from tests.unit.sequencer.core.core_world import World, share_world

RELEASE, UNREAD = AcknowledgeType.RELEASE, AcknowledgeType.UNREAD


def throttled_world(records: int, limit: int, deliveries: int = 0) -> World:
    """All records were delivered and released so often, before the cluster reached the level."""
    world = share_world("one", records=records, **{"share.delivery.count.limit": str(limit)})
    for delivery in range(1, deliveries + 1):
        assert world.shares.acquire("one") == [(0, records - 1, delivery)]
        world.shares.acknowledge("one", 0, records - 1, RELEASE)
    world.do(RaiseLevel(world.now_ms, THROTTLED_DELIVERIES_LEVEL))
    return world


@pytest.mark.parametrize(
    ("limit", "counts"),
    [
        (2, [100, 100]),
        (3, [100, 100, 1]),
        (4, [100, 100, 50, 1]),
        (5, [100, 100, 100, 50, 1]),
        (6, [100, 100, 100, 50, 25, 1]),
        (10, [100, 100, 100, 100, 100, 50, 25, 12, 6, 1]),
    ],
)
def test_the_number_of_records_of_each_delivery(limit: int, counts: list[int]) -> None:
    for deliveries, count in enumerate(counts):
        world = throttled_world(100, limit, deliveries)
        assert world.shares.acquire("one") == [(0, count - 1, deliveries + 1)], deliveries


@pytest.mark.parametrize("limit", [2, 3, 10])
def test_below_the_level_the_number_stays_the_same(limit: int) -> None:
    world = share_world("one", records=20, **{"share.delivery.count.limit": str(limit)})
    world.do(RaiseLevel(world.now_ms, THROTTLED_DELIVERIES_LEVEL - 1))
    for delivery in range(1, limit + 1):
        assert world.shares.acquire("one") == [(0, 19, delivery)]
        world.shares.acknowledge("one", 0, 19, RELEASE)
    assert world.shares.lag() == 0


def test_few_records_are_the_half_of_those_that_the_member_would_get() -> None:
    world = throttled_world(100, 5, 3)
    assert world.shares.acquire("one", 20) == [(0, 9, 4)]
    assert world.shares.acquire("one", 20) == [(10, 19, 4)]
    assert world.shares.acquire("one", 1) == [(20, 20, 4)]
    assert world.shares.acquire("one", 0) == []


def test_few_records_come_without_those_before_and_after_them() -> None:
    world = share_world("one", records=6)
    assert world.shares.acquire("one") == [(0, 5, 1)]
    world.shares.acknowledge("one", 0, 1, UNREAD)
    world.shares.acknowledge("one", 2, 5, RELEASE)
    for delivery in (2, 3):
        assert world.shares.acquire("one", first=2) == [(2, 5, delivery)]
        world.shares.acknowledge("one", 2, 5, RELEASE)
    world.do(RaiseLevel(world.now_ms, THROTTLED_DELIVERIES_LEVEL))
    world.shares.write(4)
    expected = [[(0, 1, 1)], [(2, 3, 4)], [(4, 4, 4)], [(5, 5, 4)], [(6, 9, 1)], []]
    assert [world.shares.acquire("one") for _ in expected] == expected


def test_records_after_their_last_delivery_but_one_come_one_at_a_time() -> None:
    world = throttled_world(3, 3, 2)
    assert [world.shares.acquire("one") for _ in range(4)] == [[(0, 0, 3)], [(1, 1, 3)], [(2, 2, 3)], []]


def test_gaps_do_not_count_as_the_record_that_comes_alone() -> None:
    world = throttled_world(3, 3, 2)
    world.shares.write(1)
    assert world.shares.acquire("one", gaps=[OffsetRange(0, 0)]) == [(1, 1, 3)]
    assert world.shares.acquire("one", gaps=[OffsetRange(2, 2)]) == [(3, 3, 1)]


def test_all_records_are_delivered_up_to_the_limit_and_then_done() -> None:
    world = throttled_world(50, 5)
    deliveries = [0] * 50
    while ranges := world.shares.acquire("one"):
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                deliveries[offset] += 1
                assert deliveries[offset] == count
            world.shares.acknowledge("one", first, last, RELEASE)
    assert deliveries == [5] * 50
    assert (world.shares.share.start, world.shares.share.holds, world.shares.lag()) == (50, [], 0)
