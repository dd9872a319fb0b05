"""Delayed redelivery of released records, and renewals that a group does not allow."""

import pytest

from penstock.contracts.commands import (
    AcknowledgeType,
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    LogOffset,
    RaiseLevel,
)
from penstock.contracts.levels import DEAD_LETTERS_LEVEL, RENEWED_LOCKS_LEVEL, SHARE_GROUPS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.timers import next_deadline_ms
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from tests.unit.sequencer.core.core_shares import LOCK_MS
from tests.unit.sequencer.core.core_world import World, share_world, topic_id

DELAY = "penstock.share.redelivery.delay.ms"
RENEW = "share.renew.acknowledge.enable"
DELAY_MS = 4_000


def delaying_world(*members: str, records: int = 0, **configs: str) -> World:
    return share_world(*members, records=records, **{DELAY: str(DELAY_MS)}, **configs)


def set_topic_delay(world: World, value: str) -> None:
    changes = [ConfigChange(DELAY, ConfigOperation.SET, value)]
    assert not hasattr(world.do(AlterConfigs(world.now_ms, "t", changes)), "rejection")


def test_a_released_record_is_delivered_again_after_the_groups_delay() -> None:
    world = delaying_world("one", "two", records=3)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 1, 1, AcknowledgeType.RELEASE)
    assert next_deadline_ms(world.state) == world.now_ms + DELAY_MS
    world.wait(DELAY_MS - 1)
    assert (world.shares.windows(), world.shares.acquire("two")) == ([], [])
    world.wait(1)
    assert world.shares.windows() == [(1, 1)]
    assert world.shares.acquire("two") == [(1, 1, 2)]
    assert world.shares.lag() == 3, "a delayed record is not done"


def test_only_a_release_by_the_member_is_delayed() -> None:
    world = delaying_world("one", "two", records=4)
    world.shares.acquire("one", 1)
    world.shares.acknowledge("one", 0, 0, AcknowledgeType.UNREAD)
    assert world.shares.windows() == [(0, 0), (1, 3)], "the member never had it"
    world.shares.acquire("one", 2)
    world.wait(LOCK_MS)
    assert world.shares.windows() == [(0, 1), (2, 3)], "the lock's time is over already"
    world.shares.acquire("one", 2)
    world.shares.leave("one")
    assert world.shares.acquire("two", 9) == [(0, 1, 2), (2, 3, 1)]


def test_delayed_records_return_together_at_tenths_of_a_second() -> None:
    world = delaying_world("one", records=4)
    world.shares.acquire("one")
    for offset, pause_ms in enumerate((1, 30, 60)):
        world.wait(pause_ms + (-world.now_ms % 100 if not offset else 0))
        world.shares.acknowledge("one", offset, offset, AcknowledgeType.RELEASE)
    holds = world.shares.share.holds
    assert [(hold.first, hold.last) for hold in holds] == [(0, 2), (3, 3)]
    assert holds[0].until_ms % 100 == 0
    assert 0 < holds[0].until_ms - world.now_ms - DELAY_MS < 100


def test_a_delayed_record_keeps_its_place_and_others_pass_it() -> None:
    world = delaying_world("one", records=6)
    world.shares.acquire("one", 2)
    world.shares.acknowledge("one", 0, 1, AcknowledgeType.RELEASE)
    assert world.shares.acquire("one", 3) == [(2, 4, 1)]
    world.wait(DELAY_MS)
    assert world.shares.acquire("one", 3) == [(0, 1, 2), (5, 5, 1)]


def test_delayed_records_are_in_flight() -> None:
    world = delaying_world("one", records=150, **{"share.partition.max.record.locks": "100"})
    assert world.shares.acquire("one") == [(0, 99, 1)]
    world.shares.acknowledge("one", 0, 99, AcknowledgeType.RELEASE)
    assert world.shares.windows() == []
    world.wait(DELAY_MS)
    assert world.shares.windows() == [(0, 99)]


def test_the_last_delivery_is_not_delayed_but_done() -> None:
    world = delaying_world("one", records=1, **{"share.delivery.count.limit": "2"})
    for _ in range(2):
        world.wait(DELAY_MS)
        world.shares.acquire("one")
        world.shares.acknowledge("one", 0, 0, AcknowledgeType.RELEASE)
    assert (world.shares.share.start, world.shares.lag()) == (1, 0)


def test_a_lower_limit_counts_at_the_next_delivery() -> None:
    world = delaying_world("one", records=1)
    for _ in range(2):
        world.wait(DELAY_MS)
        world.shares.acquire("one")
        world.shares.acknowledge("one", 0, 0, AcknowledgeType.RELEASE)
    world.shares.configure(**{"share.delivery.count.limit": "2"})
    world.wait(DELAY_MS)
    assert world.shares.lag() == 1
    assert world.shares.acquire("one") == []
    assert (world.shares.share.start, world.shares.lag()) == (1, 0)


def test_the_topics_delay_is_in_force_for_its_records() -> None:
    world = delaying_world("one", records=2)
    set_topic_delay(world, "1000")
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, AcknowledgeType.RELEASE)
    set_topic_delay(world, "0")
    world.shares.acknowledge("one", 1, 1, AcknowledgeType.RELEASE)
    assert world.shares.windows() == [(1, 1)], "a present delay keeps its end"
    world.wait(1_000)
    assert world.shares.windows() == [(0, 1)]
    set_topic_delay(world, "-1")
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 1, AcknowledgeType.RELEASE)
    world.wait(DELAY_MS - 1)
    assert world.shares.windows() == []
    world.wait(1)
    assert world.shares.windows() == [(0, 1)]


def test_records_that_the_log_no_longer_has_do_not_return() -> None:
    world = delaying_world("one", records=3)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 2, AcknowledgeType.RELEASE)
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, 2)]))
    world.wait(DELAY_MS)
    assert world.shares.acquire("one") == [(2, 2, 2)]
    assert world.shares.share.start == 2


def test_a_delay_survives_a_snapshot_and_the_last_member() -> None:
    world = delaying_world("one", records=2)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 1, AcknowledgeType.RELEASE)
    world.shares.leave("one")
    world.state = decode_state(encode_state(world.state))
    world.wait(DELAY_MS)
    world.shares.join("two")
    assert world.shares.acquire("two") == [(0, 1, 2)]


@pytest.mark.parametrize("value", ["-1", "86400001", "1.5", "", "x"])
def test_delays_of_groups_are_up_to_a_day(value: str) -> None:
    world = delaying_world("one")
    assert world.shares.configure(**{DELAY: value}).rejection == Rejection.INVALID_CONFIG


def test_a_delay_needs_the_level_at_which_all_replicas_know_it() -> None:
    world = share_world("one")
    changes = [ConfigChange(DELAY, ConfigOperation.SET, "1000")]
    assert world.state.level == SHARE_GROUPS_LEVEL
    assert world.shares.configure(**{DELAY: "1000"}).rejection == Rejection.INVALID_CONFIG
    assert world.shares.configure(**{RENEW: "false"}).rejection == Rejection.INVALID_CONFIG
    assert world.do(AlterConfigs(world.now_ms, "t", changes)).rejection == Rejection.INVALID_CONFIG
    assert world.topic("u", number=2, **{DELAY: "1"}).rejection == Rejection.INVALID_CONFIG
    world.do(RaiseLevel(world.now_ms, DEAD_LETTERS_LEVEL))
    assert not hasattr(world.do(AlterConfigs(world.now_ms, "t", changes)), "rejection")
    assert world.topic("u", number=2, **{DELAY: "1"}).configs == {DELAY: "1"}


def test_a_group_may_not_allow_renewals() -> None:
    world = share_world("one", records=3, **{RENEW: "false"})
    world.shares.acquire("one")
    world.wait(LOCK_MS - 1)
    mixed = (AcknowledgeType.ACCEPT, AcknowledgeType.RENEW)
    assert world.shares.acknowledge("one", 0, 1, *mixed) == Rejection.INVALID_RECORD_STATE
    assert world.shares.acknowledge("one", 0, 0, AcknowledgeType.ACCEPT) == Rejection.NONE
    world.wait(1)
    assert world.shares.windows() == [(1, 2)]
    world.shares.configure(**{RENEW: "true"})
    world.shares.acquire("one")
    assert world.shares.acknowledge("one", 1, 2, AcknowledgeType.RENEW) == Rejection.NONE


@pytest.mark.parametrize("level", [RENEWED_LOCKS_LEVEL - 1, RENEWED_LOCKS_LEVEL])
def test_a_renewed_lock_ends_after_the_new_duration_also_if_that_is_shorter(level: int) -> None:
    world = share_world("one", records=2)
    world.do(RaiseLevel(world.now_ms, level))
    world.shares.acquire("one")
    world.shares.configure(**{"share.record.lock.duration.ms": "1000"})
    if level < RENEWED_LOCKS_LEVEL:
        world.on_entry.clear()  # below the level the lock ends too late, as in earlier releases
    assert world.shares.acknowledge("one", 0, 0, AcknowledgeType.RENEW) == Rejection.NONE
    world.wait(1_000)
    assert world.shares.windows() == ([] if level < RENEWED_LOCKS_LEVEL else [(0, 0)])
    world.wait(LOCK_MS - 1_000)
    assert world.shares.windows() == [(0, 1)]
