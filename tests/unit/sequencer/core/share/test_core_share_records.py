"""Records of share groups: which member gets which, for how long, how often (KIP-932)."""

from typing import Any

import pytest

from penstock.contracts.batches import TRANSACTIONAL
from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
    AcquiredRange,
    CreatePartitions,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    InitTransactionalProducer,
    LogOffset,
    OffsetRange,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.timers import next_deadline_ms
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.limits import Limits, ShareLimits
from tests.unit.sequencer.core.core_shares import LOCK_MS
from tests.unit.sequencer.core.core_world import World, batch, check_invariants, share_world, topic_id

T = topic_id(1)
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


def test_members_get_different_records_in_order() -> None:
    world = share_world("one", "two", records=10)
    assert world.shares.acquire("one", 4) == [(0, 3, 1)]
    assert world.shares.acquire("two", 4) == [(4, 7, 1)]
    assert world.shares.windows() == [(8, 9)]
    assert world.shares.lag() == 10


def test_accepted_records_are_done() -> None:
    world = share_world("one", records=10)
    world.shares.acquire("one", 6)
    assert world.shares.acknowledge("one", 2, 3, ACCEPT) == Rejection.NONE
    assert (world.shares.share.start, world.shares.lag()) == (0, 8)
    assert world.shares.acknowledge("one", 0, 1, ACCEPT) == Rejection.NONE
    assert (world.shares.share.start, world.shares.lag()) == (4, 6)
    assert world.shares.acknowledge("one", 0, 1, ACCEPT) == Rejection.INVALID_RECORD_STATE


def test_released_records_are_delivered_again_with_a_higher_count() -> None:
    world = share_world("one", "two", records=6)
    world.shares.acquire("one")
    assert world.shares.acknowledge("one", 0, 3, ACCEPT, RELEASE, REJECT, RELEASE) == Rejection.NONE
    assert world.shares.windows() == [(1, 1), (3, 3)]
    assert world.shares.acquire("two") == [(1, 1, 2), (3, 3, 2)]


def test_a_record_is_delivered_up_to_the_limit() -> None:
    world = share_world("one", records=2)
    for delivery in range(1, 6):
        assert world.shares.acquire("one") == [(0, 1, delivery)]
        world.shares.acknowledge("one", 0, 1, RELEASE)
    assert world.shares.acquire("one") == []
    assert (world.shares.share.start, world.shares.lag()) == (2, 0)


def test_a_record_whose_lock_ended_counts_as_delivered_and_is_delivered_again() -> None:
    world = share_world("one", "two", records=3)
    world.shares.acquire("one")
    assert next_deadline_ms(world.state) == world.now_ms + LOCK_MS
    world.wait(LOCK_MS - 1)
    assert world.shares.acquire("two") == []
    world.wait(1)
    assert world.shares.acquire("two") == [(0, 2, 2)]
    assert world.shares.acknowledge("one", 0, 2, ACCEPT) == Rejection.INVALID_RECORD_STATE


def test_only_ended_locks_are_counted() -> None:
    world = share_world("one", records=3)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, ACCEPT)
    assert world.effects is not None and world.effects.share_locks_ended == 0
    world.wait(LOCK_MS)
    assert world.effects.share_locks_ended == 2
    world.wait(LOCK_MS)
    assert world.effects.share_locks_ended == 0


def test_a_renewed_lock_starts_again() -> None:
    world = share_world("one", records=3)
    world.shares.acquire("one")
    world.wait(LOCK_MS - 1)
    assert world.shares.acknowledge("one", 1, 1, RENEW) == Rejection.NONE
    world.wait(1)
    assert world.shares.windows() == [(0, 0), (2, 2)]
    world.wait(LOCK_MS)
    assert world.shares.windows() == [(0, 2)]


def test_locks_end_together_at_tenths_of_a_second() -> None:
    world = share_world("one", records=4)
    for delay_ms in (1, 30, 60):
        world.wait(delay_ms - world.now_ms % 100)
        world.shares.acquire("one", 1)
    assert {hold.until_ms for hold in world.shares.share.holds} == {world.now_ms + LOCK_MS + 40}
    world.wait(LOCK_MS - 1)
    assert world.shares.windows() == [(3, 3)]
    world.wait(41)
    assert world.shares.windows() == [(0, 2), (3, 3)]


def test_unread_records_do_not_count_as_delivered() -> None:
    world = share_world("one", "two", records=4)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 1, AcknowledgeType.UNREAD)
    assert world.shares.acquire("two", 2) == [(0, 1, 1)]
    world.shares.records("one", SharePartition(T, 0), releases_through=world.shares.group.acquisitions)
    assert world.shares.acquire("two") == [(2, 3, 1)]
    world.shares.leave("two")
    assert world.shares.acquire("one") == [(0, 3, 1)]


def test_the_end_of_a_session_acknowledges_first_and_releases_the_rest() -> None:
    world = share_world("one", "two", records=4)
    world.shares.acquire("one")
    partition = SharePartition(T, 0, [AcknowledgedRange(0, 1, bytes([ACCEPT]))])
    world.shares.records("one", partition, releases_through=1)
    assert (world.shares.share.start, world.shares.windows()) == (2, [(2, 3)])


def test_the_end_of_a_session_releases_only_its_own_records() -> None:
    world = share_world("one", records=4)
    world.topic("u", number=2)
    world.shares.heartbeat("one", 1, ["t", "u"])
    world.shares.write(2, number=2)
    other = SharePartition(topic_id(2), 0, [], 0, -1, 9)
    numbers = [
        world.shares.records("one", SharePartition(T, 0, [], 0, -1, 2)).acquisition,
        world.shares.records("one", SharePartition(T, 0, [], 0, -1, 1), other, ticket=7).acquisition,
    ]
    assert numbers == [1, 2]
    world.shares.records("one", SharePartition(T, 0), releases_through=1)
    assert world.shares.windows() == [(0, 1), (3, 3)], "later records belong to another session"
    assert world.shares.records("one", SharePartition(T, 0, [], 0, -1, 1), other, ticket=7).acquisition == 2
    world.shares.acquire("one", 1)
    world.shares.records("one", SharePartition(T, 0), releases_from=2, releases_through=2)
    assert world.shares.windows() == [(1, 2), (3, 3)], "earlier records belong to another session too"
    world.shares.records("one", SharePartition(T, 0), releases_through=9)
    assert world.shares.windows() == [(0, 2), (3, 3)]
    acknowledged = [AcknowledgedRange(0, 1, bytes([ACCEPT]))]
    (shared,) = world.shares.records("one", SharePartition(topic_id(2), 0, acknowledged)).partitions
    assert shared.acknowledge_rejection == Rejection.NONE, "the session does not have this partition"


def test_only_the_owner_acknowledges_records_and_all_or_none() -> None:
    world = share_world("one", "two", records=6)
    world.shares.acquire("one", 3)
    world.shares.acquire("two", 3)
    assert world.shares.acknowledge("one", 2, 3, ACCEPT) == Rejection.INVALID_RECORD_STATE
    assert world.shares.acknowledge("one", 5, 9, ACCEPT) == Rejection.INVALID_RECORD_STATE
    acknowledged = [AcknowledgedRange(0, 0, bytes([ACCEPT])), AcknowledgedRange(4, 4, bytes([ACCEPT]))]
    (shared,) = world.shares.records("one", SharePartition(T, 0, acknowledged)).partitions
    assert (shared.acknowledge_rejection, world.shares.lag()) == (Rejection.INVALID_RECORD_STATE, 6)


@pytest.mark.parametrize(
    "acknowledged",
    [
        [AcknowledgedRange(1, 0, b"\1")],
        [AcknowledgedRange(0, 2, b"\1\1")],
        [AcknowledgedRange(0, 0, b"")],
        [AcknowledgedRange(0, 0, b"\6")],
        [AcknowledgedRange(1, 1, b"\1"), AcknowledgedRange(0, 0, b"\1")],
        [AcknowledgedRange(-1, 0, b"\1")],
    ],
)
def test_invalid_acknowledgements_are_rejected(acknowledged: list[AcknowledgedRange]) -> None:
    world = share_world("one", records=3)
    world.shares.acquire("one")
    (shared,) = world.shares.records("one", SharePartition(T, 0, acknowledged)).partitions
    assert (shared.acknowledge_rejection, world.shares.lag()) == (Rejection.INVALID_REQUEST, 3)


def test_a_client_that_is_no_member_acquires_nothing() -> None:
    world = share_world("one", records=3)
    wanted = SharePartition(T, 0, [], 0, -1, 5)
    assert world.shares.records("two", wanted).rejection == Rejection.UNKNOWN_MEMBER
    assert world.do(ShareRecords(world.now_ms, "h", "one", [wanted], 5)).rejection == Rejection.UNKNOWN_GROUP
    assert world.shares.records("one", wanted, wanted).rejection == Rejection.INVALID_REQUEST
    backwards = SharePartition(T, 0, [], 0, -1, 5, [OffsetRange(2, 1)])
    assert world.shares.records("one", backwards).rejection == Rejection.INVALID_REQUEST
    assert world.shares.acknowledge("two", 0, 0, ACCEPT) == Rejection.INVALID_RECORD_STATE


def test_an_unknown_partition_is_rejected_by_itself() -> None:
    world = share_world("one", records=3)
    missing = SharePartition(topic_id(7), 0, [AcknowledgedRange(0, 0, b"\1")], 0, -1, 5)
    first, second = world.shares.records("one", missing, SharePartition(T, 0, [], 0, -1, 5)).partitions
    assert (first.acknowledge_rejection, first.rejection, first.acquired) == (
        Rejection.UNKNOWN_TOPIC,
        Rejection.UNKNOWN_TOPIC,
        [],
    )
    assert [each.last for each in second.acquired] == [2]


def test_a_repeated_command_acquires_no_more_records() -> None:
    world = share_world("one", records=9)
    acknowledged = [AcknowledgedRange(5, 5, b"\1")]
    command = ShareRecords(world.now_ms, "g", "one", [SharePartition(T, 0, acknowledged, 0, -1, 3)], 3, ticket=77)
    answer = world.do(command)
    assert answer.partitions[0].acknowledge_rejection == Rejection.INVALID_RECORD_STATE
    assert world.do(command) == answer
    assert world.shares.windows() == [(3, 8)]
    for ticket in range(1, 9):
        world.shares.records("one", ticket=ticket)
    assert world.do(command).partitions[0].acquired[0].first == 3


def test_the_limit_of_records_counts_over_all_partitions_of_a_request() -> None:
    world = share_world("one", records=5)
    world.do(CreatePartitions(world.now_ms, "t", 2))
    world.produce(batch(5), partition=1)
    wanted = [SharePartition(T, number, [], 0, -1, 4) for number in (0, 1)]
    first, second = world.shares.records("one", *wanted, records_max=6).partitions
    assert ([each.last for each in first.acquired], [each.last for each in second.acquired]) == ([3], [1])


def test_the_records_in_flight_of_a_partition_are_limited() -> None:
    world = share_world("one", records=250, **{"share.partition.max.record.locks": "100"})
    assert world.shares.windows() == [(0, 99)]
    assert world.shares.acquire("one") == [(0, 99, 1)]
    assert (world.shares.windows(), world.shares.acquire("one")) == ([], [])
    world.shares.acknowledge("one", 10, 29, ACCEPT)
    assert world.shares.windows() == [(100, 119)]
    world.shares.acknowledge("one", 30, 39, RELEASE)
    assert world.shares.acquire("one") == [(30, 39, 2), (100, 119, 1)]


def test_the_records_in_flight_of_all_groups_together_are_limited() -> None:
    world = share_world("one", records=10, limits=Limits(share=ShareLimits(share_records_max=7)))
    world.shares.configure("h", **{"share.auto.offset.reset": "earliest"})
    world.shares.join("one", group_id="h")
    assert world.shares.acquire("one", 5) == [(0, 4, 1)]
    answer = world.do(ShareRecords(world.now_ms, "h", "one", [SharePartition(T, 0, [], 0, -1, 9)], 9))
    assert [(each.first, each.last) for each in answer.partitions[0].acquired] == [(0, 1)]
    assert world.shares.windows() == []


def test_only_offsets_of_the_window_are_acquired_and_none_is_skipped() -> None:
    world = share_world("one", records=10)
    assert world.shares.acquire("one", 9, first=0, last=3) == [(0, 3, 1)]
    assert world.shares.acquire("one", 9, first=6) == []
    assert world.shares.acquire("one", 9, first=2, last=5) == [(4, 5, 1)]
    world.shares.acknowledge("one", 0, 5, RELEASE)
    assert world.shares.acquire("one", 9, first=3, last=7) == [(3, 5, 2), (6, 7, 1)]


def test_gaps_are_done_and_never_delivered() -> None:
    world = share_world("one", "two", records=10)
    assert world.shares.acquire("one", 4, gaps=[OffsetRange(0, 1), OffsetRange(4, 4)]) == [(2, 3, 1), (5, 6, 1)]
    assert world.shares.share.start == 2
    world.shares.acknowledge("one", 2, 3, RELEASE)
    assert world.shares.acquire("two", 5, gaps=[OffsetRange(2, 2), OffsetRange(5, 5)]) == [(3, 3, 2), (7, 9, 1)]
    assert world.shares.acknowledge("one", 5, 6, ACCEPT) == Rejection.NONE


def test_records_removed_by_retention_are_done_but_may_still_be_acknowledged() -> None:
    world = share_world("one", records=10)
    world.shares.acquire("one", 3)
    world.shares.acquire("one", 3)
    world.shares.acknowledge("one", 3, 5, RELEASE)
    world.do(DeleteRecords(world.now_ms, [LogOffset(T, 0, 8)]))
    assert world.shares.windows() == [(8, 9)]
    assert world.shares.acquire("one") == [(8, 9, 1)]
    assert world.shares.acknowledge("one", 0, 2, ACCEPT) == Rejection.NONE
    assert (world.shares.share.start, world.shares.lag()) == (8, 2)


def test_a_group_continues_after_retention_has_removed_all_its_records_in_flight() -> None:
    world = share_world("one", records=250, **{"share.partition.max.record.locks": "100"})
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 99, RELEASE)
    world.do(DeleteRecords(world.now_ms, [LogOffset(T, 0, 50)]))
    assert (world.shares.windows(), world.shares.lag()) == ([(50, 99), (100, 149)], 200)
    world.do(DeleteRecords(world.now_ms, [LogOffset(T, 0, 150)]))
    assert (world.shares.windows(), world.shares.lag()) == ([(150, 249)], 100)
    assert world.shares.acquire("one") == [(150, 249, 1)]


def test_records_of_a_deleted_topic_have_no_owner() -> None:
    world = share_world("one", records=3)
    world.topic("u", number=2)
    world.shares.heartbeat("one", 1, ["t", "u"])
    world.shares.acquire("one")
    world.do(DeleteTopic(world.now_ms, "t", T))
    assert world.shares.acknowledge("one", 0, 2, ACCEPT) == Rejection.UNKNOWN_TOPIC
    assert world.state.share_record_count == 0
    world.wait(LOCK_MS)


def begin(world: World) -> Any:
    producer = world.do(InitTransactionalProducer(world.now_ms, "tx", 60_000))
    writer = {"producer": producer.producer_id, "epoch": producer.producer_epoch, "sequence": 0}
    world.produce(batch(3, **writer, attributes=TRANSACTIONAL, adds=True))
    return producer


def end(world: World, producer: Any) -> None:
    world.do(EndTxn(world.now_ms, "tx", producer.producer_id, producer.producer_epoch, committed=True))


def test_a_read_committed_group_waits_for_the_end_of_transactions() -> None:
    world = share_world("one", records=2, **{"share.isolation.level": "read_committed"})
    producer = begin(world)
    world.shares.write(1)
    assert world.shares.windows() == [(0, 1)]
    assert world.shares.acquire("one") == [(0, 1, 1)]
    end(world, producer)
    assert world.shares.acquire("one") == [(2, 5, 1)]


def test_read_uncommitted_groups_do_not_wait_and_no_group_gets_a_marker() -> None:
    world = share_world("one", records=2)
    producer = begin(world)
    assert world.shares.acquire("one", 3) == [(0, 2, 1)]
    end(world, producer)
    world.shares.write(1)
    assert world.shares.acquire("one") == [(3, 4, 1), (6, 6, 1)]
    world.shares.acknowledge("one", 0, 4, ACCEPT)
    assert world.shares.share.start == 6


def test_records_of_an_abandoned_group_take_no_space_from_other_groups() -> None:
    world = share_world("one", records=200, limits=Limits(share=ShareLimits(share_records_max=50)))
    assert world.shares.acquire("one", 90) == [(0, 49, 1)]
    world.shares.configure("h", **{"share.auto.offset.reset": "earliest"})
    world.shares.join("two", group_id="h")
    wanted = ShareRecords(world.now_ms, "h", "two", [SharePartition(T, 0, [], 0, -1, 90)], 90)
    assert world.do(wanted).partitions[0].acquired == []
    world.shares.expire("one")
    assert world.do(wanted).partitions[0].acquired == [AcquiredRange(0, 48, 1)], "the other group keeps one range"
    world.shares.join("one")
    assert world.shares.acquire("one", 90) == [(0, 49, 2)], "the group keeps how often it delivered them"
    world.shares.leave("one")
    check_invariants(world.state)
    check_invariants(decode_state(encode_state(world.state)))
