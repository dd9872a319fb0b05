"""Share groups that begin at a time (`by_duration`): the first record that is not older, and no record is missed."""

from typing import Any

import pytest

from penstock.contracts.commands import (
    SHARE_STARTS_MAX,
    AlterGroupConfigs,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    DeleteRecords,
    Done,
    LogOffset,
    RaiseLevel,
    Rejected,
    ShareHeartbeat,
    ShareStart,
    ShareStarts,
)
from penstock.contracts.levels import SHARE_STARTS_LEVEL, level_of
from penstock.contracts.queries.share import ShareHeartbeatQuery, ShareHeartbeatView, SharePartitionRef
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from tests.unit.sequencer.core.core_world import START_MS, World, batch, share_world, topic_id

RESET = "share.auto.offset.reset"
HOUR_MS = 3_600_000
T = topic_id(1)


def hours_old(*ages: float) -> World:
    """Topic "t" with one segment of two records of each of these ages; its group begins an hour ago."""
    world = share_world(**{RESET: "by_duration:PT1H"})
    for age in ages:
        world.produce(batch(2, timestamp=START_MS - int(age * HOUR_MS)))
    return world


def starts(timestamp: int, offset: int, partition: int = 0) -> ShareStarts:
    return ShareStarts(timestamp, [ShareStart(T, partition, offset)])


def view(world: World, *topics: str, epoch: int = 0, member: str = "one") -> ShareHeartbeatView:
    heartbeat = ShareHeartbeat(world.now_ms, "g", member, epoch, None, "client", "/host", list(topics))
    found: ShareHeartbeatView = queries.QUERIES["share_heartbeat"](world.state, ShareHeartbeatQuery(0, heartbeat))
    return found


def test_a_group_begins_at_the_first_extent_that_has_a_young_record() -> None:
    world = hours_old(3, 2, 0.5, 4, 0.1)
    world.shares.join("one")
    assert world.shares.share.start == 4
    assert world.shares.acquire("one") == [(4, 9, 1)]


@pytest.mark.parametrize("ages", [(), (3, 2)])
def test_a_group_begins_at_the_end_of_a_log_without_young_records(ages: tuple[int, ...]) -> None:
    world = hours_old(*ages)
    world.shares.join("one")
    assert world.shares.share.start == 2 * len(ages)
    world.produce(batch(1, timestamp=0))
    assert world.shares.acquire("one") == [(2 * len(ages), 2 * len(ages), 1)]


def test_a_record_that_is_exactly_as_old_as_the_duration_is_read() -> None:
    world = hours_old(2, 1)
    world.shares.join("one")
    assert world.shares.share.start == 2


def test_a_duration_that_begins_before_1970_reads_all_records() -> None:
    world = share_world(**{RESET: "by_duration:P99999D"})
    world.produce(batch(2, timestamp=0))
    world.shares.join("one")
    assert world.shares.share.start == 0


@pytest.mark.parametrize(("offset", "expected"), [(2, 2), (3, 3), (4, 4), (1, 2), (-1, 2), (5, 2), (2**63 - 1, 2)])
def test_the_gateways_offset_counts_between_the_extents_begin_and_the_end_of_the_log(
    offset: int, expected: int
) -> None:
    world = hours_old(2, 0.5)
    world.shares.join("one", starts=starts(START_MS - HOUR_MS, offset))
    assert world.shares.share.start == expected


def test_an_offset_of_another_time_is_not_used() -> None:
    world = hours_old(2, 0.5)
    world.shares.join("one", starts=starts(START_MS - HOUR_MS + 1, 3))
    assert world.shares.share.start == 2


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 4)])
def test_groups_without_a_duration_use_no_offset_of_the_gateway(reset: str, expected: int) -> None:
    world = hours_old(2, 0.5)
    world.shares.configure(**{RESET: reset})
    assert view(world, "t") == ShareHeartbeatView(world.state.sequence, None)
    world.shares.join("one", starts=starts(START_MS - HOUR_MS, 3))
    assert world.shares.share.start == expected


def test_deleted_records_are_not_read() -> None:
    world = hours_old(2, 0.5)
    world.do(DeleteRecords(world.now_ms, [LogOffset(T, 0, 3)]))
    world.shares.join("one", starts=starts(START_MS - HOUR_MS, 2))
    assert world.shares.share.start == 3


def test_a_heartbeat_names_the_partitions_that_begin_by_time_until_the_group_shares_them() -> None:
    world = hours_old(2)
    world.topic("u", partitions=2, number=2)
    found = view(world, "u", "t", "none", "t")
    refs = [SharePartitionRef(T, 0), SharePartitionRef(topic_id(2), 0), SharePartitionRef(topic_id(2), 1)]
    assert (found.outcome, found.timestamp, found.begins) == (None, START_MS - HOUR_MS, refs)
    world.shares.join("one")
    assert view(world, "t", "u", epoch=1).begins == refs[1:]
    assert view(world, "t", member="two").begins == []
    assert view(world, epoch=-1) == ShareHeartbeatView(world.state.sequence, None)
    assert view(world, "u", epoch=9).begins == [], "a rejected heartbeat begins nothing"


def test_a_heartbeat_names_a_limited_number_of_partitions() -> None:
    world = hours_old()
    world.topic("u", partitions=SHARE_STARTS_MAX + 5, number=2)
    assert len(view(world, "u").begins) == SHARE_STARTS_MAX
    assert len(view(world, "t", "u").begins) == SHARE_STARTS_MAX
    many = ShareStarts(0, [ShareStart(T, 0, 0)] * (SHARE_STARTS_MAX + 1))
    rejected = world.shares.join("one", starts=many)
    assert rejected == Rejected(Rejection.INVALID_REQUEST, "first offsets of 1001 partitions")


def test_partitions_that_a_shared_topic_gets_later_are_read_from_their_beginning() -> None:
    world = hours_old(2)
    world.shares.join("one")
    world.do(CreatePartitions(world.now_ms, "t", 2))
    assert view(world, "t", epoch=1, member="one").begins == []
    assert world.shares.group.partitions[T][1].start == 0


def test_a_topic_that_is_created_after_its_subscription_begins_without_a_heartbeat() -> None:
    world = hours_old(2)
    world.shares.join("one", "t", "u")
    world.topic("u", number=2)
    world.produce(batch(1, timestamp=0), number=2)
    assert world.shares.group.partitions[topic_id(2)][0].start == 0


def change(value: str, operation: ConfigOperation = ConfigOperation.SET) -> Any:
    return AlterGroupConfigs(START_MS, "g", [ConfigChange(RESET, operation, value)])


def test_a_duration_needs_its_level() -> None:
    world = World()
    world.do(RaiseLevel(world.now_ms, SHARE_STARTS_LEVEL - 1))
    reason = "some sequencers do not know these configurations yet"
    assert world.do(change("by_duration:PT1H")) == Rejected(Rejection.INVALID_CONFIG, reason)
    assert world.do(change("earliest")) == Done()
    assert world.do(change("by_duration:PT1H", ConfigOperation.DELETE)) == Done()
    world.do(RaiseLevel(world.now_ms, SHARE_STARTS_LEVEL))
    assert world.do(change("by_duration:PT1H")) == Done()


def test_first_offsets_in_a_heartbeat_need_their_level() -> None:
    heartbeat = ShareHeartbeat(START_MS, "g", "one", 0, None, "client", "/host", ["t"])
    assert level_of([heartbeat]) < SHARE_STARTS_LEVEL
    with_starts = ShareHeartbeat(START_MS, "g", "one", 0, None, "c", "/h", ["t"], starts=starts(0, 0))
    assert level_of([with_starts]) == SHARE_STARTS_LEVEL
