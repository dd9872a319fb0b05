"""Dead letters of share groups (KIP-1191): which records have one, and until when it is pending."""

from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
    AlterConfigs,
    AlterShareOffsets,
    ConfigChange,
    ConfigOperation,
    DeadRecords,
    DeleteGroup,
    DeleteRecords,
    DeleteTopic,
    Done,
    EndDeadLetters,
    EndedDeadLetters,
    LogOffset,
    RaiseLevel,
    ShareOffset,
    SharePartition,
)
from penstock.contracts.levels import DEAD_LETTERS_LEVEL, SHARE_GROUPS_LEVEL, level_of
from penstock.contracts.queries.share import (
    DEAD_LETTERS_PER_VIEW_MAX,
    DeadLetterGroup,
    DeadLetterGroupsQuery,
    DeadLettersQuery,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from tests.unit.sequencer.core.core_shares import LOCK_MS
from tests.unit.sequencer.core.core_world import World, batch, share_world, topic_id

TOPIC = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
ALLOWED = "errors.deadletterqueue.group.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
CREATE = "errors.deadletterqueue.auto.create.topics.enable"
LIMIT_OF_TWO = {"share.delivery.count.limit": "2"}
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
T = topic_id(1)


def letters_world(*members: str, records: int = 0, **configs: str) -> World:
    """A group whose dead letters go to "dlq.t"."""
    return share_world(*members, records=records, **{TOPIC: "dlq.t"}, **configs)


def view_of(world: World) -> Any:
    return queries.QUERIES["dead_letters"](world.state, DeadLettersQuery(0, "g"))


def letters(world: World) -> list[tuple[int, int, int, bool]]:
    """The pending dead letters: first and last offset, deliveries, whether a member rejected them."""
    return [
        (each.records.first, each.records.last, each.deliveries, each.rejected)
        for partition in view_of(world).partitions
        for each in partition.letters
    ]


def groups(world: World, after: str = "") -> list[DeadLetterGroup]:
    found: list[DeadLetterGroup] = queries.QUERIES["dead_letter_groups"](
        world.state, DeadLetterGroupsQuery(0, after)
    ).groups
    return found


def end(world: World, first: int, last: int, sequence: int, partition: int = 0) -> Any:
    ended = EndedDeadLetters(T, partition, [DeadRecords(first, last, sequence)])
    return world.do(EndDeadLetters(world.now_ms, "g", [ended]))


def set_cluster(world: World, name: str, value: str) -> Any:
    changes = [ConfigChange(name, ConfigOperation.SET, value)]
    return world.do(AlterConfigs(world.now_ms, "", changes, seen_sequence=world.state.sequence))


def test_a_rejected_record_is_pending_until_its_dead_letter_ends() -> None:
    world = letters_world("one", records=4)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 3, ACCEPT, REJECT, REJECT, ACCEPT)
    died = world.state.sequence
    assert letters(world) == [(1, 2, 1, True)]
    assert (world.shares.share.start, world.shares.lag()) == (1, 2)
    assert world.shares.windows() == []
    assert end(world, 1, 1, died) == Done()
    assert letters(world) == [(2, 2, 1, True)]
    end(world, 2, 2, died)
    assert (letters(world), groups(world), world.shares.lag()) == ([], [], 0)


def test_a_record_that_was_released_as_often_as_allowed_is_pending() -> None:
    world = letters_world("one", records=2, **LIMIT_OF_TWO)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 1, RELEASE, ACCEPT)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, RELEASE)
    assert letters(world) == [(0, 0, 2, False)]
    assert world.shares.acquire("one") == []


def test_a_record_whose_locks_ended_as_often_as_allowed_is_pending() -> None:
    world = letters_world("one", records=1, **LIMIT_OF_TWO)
    for _ in range(2):
        world.shares.acquire("one")
        world.wait(LOCK_MS)
    assert letters(world) == [(0, 0, 2, False)]


def test_the_records_of_a_silent_member_may_be_dead_letters_and_those_of_one_that_left_are_not() -> None:
    world = letters_world("one", "two", records=1, **LIMIT_OF_TWO)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, RELEASE)
    world.shares.acquire("one")
    world.shares.leave("one")
    assert letters(world) == []
    world.shares.acquire("two")
    world.shares.expire("two")
    assert letters(world) == [(0, 0, 2, False)]


def test_a_lower_limit_makes_dead_letters_at_the_next_acquisition() -> None:
    world = letters_world("one", records=2)
    for _ in range(2):
        world.shares.acquire("one", 1)
        world.shares.acknowledge("one", 0, 0, RELEASE)
    world.shares.configure(**LIMIT_OF_TWO)
    assert world.shares.acquire("one") == [(1, 1, 1)]
    assert letters(world) == [(0, 0, 2, False)]


def test_gaps_and_records_that_the_log_no_longer_has_are_no_dead_letters() -> None:
    world = letters_world("one", records=3)
    world.shares.acquire("one", 2)
    world.shares.acknowledge("one", 0, 0, AcknowledgeType.GAP)
    world.shares.acknowledge("one", 1, 1, AcknowledgeType.UNREAD)
    world.do(DeleteRecords(world.now_ms, [LogOffset(T, 0, 2)]))
    assert world.shares.acquire("one") == [(2, 2, 1)]
    assert letters(world) == []


def test_a_pending_dead_letter_outlives_its_record() -> None:
    world = letters_world("one", records=3)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, REJECT)
    world.do(DeleteRecords(world.now_ms, [LogOffset(T, 0, 3)]))
    world.shares.acquire("one")
    assert letters(world) == [(0, 0, 1, True)]
    assert view_of(world).partitions[0].log_start_offset == 3


def test_a_group_without_a_topic_for_dead_letters_has_none() -> None:
    world = share_world("one", records=1)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, REJECT)
    assert (letters(world), world.shares.lag(), world.state.dead_letters) == ([], 0, {})


def test_pending_dead_letters_stay_when_the_group_gets_no_topic_for_them_any_more() -> None:
    world = letters_world("one", records=2)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, REJECT)
    died = world.state.sequence
    world.shares.configure(**{TOPIC: ""})
    world.shares.acknowledge("one", 1, 1, REJECT)
    assert (view_of(world).topic, letters(world)) == ("", [(0, 0, 1, True)])
    end(world, 0, 0, died)
    assert world.shares.share.start == 2


def test_a_late_copy_ends_no_dead_letter_of_a_later_death() -> None:
    world = letters_world("one", records=1)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, REJECT)
    first_death = world.state.sequence
    end(world, 0, 0, first_death)
    world.shares.leave("one")
    world.do(AlterShareOffsets(world.now_ms, "g", [ShareOffset("t", 0, 0)]))
    world.shares.join("two")
    world.shares.acquire("two")
    world.shares.acknowledge("two", 0, 0, REJECT)
    end(world, 0, 0, first_death)
    assert letters(world) == [(0, 0, 1, True)]


@pytest.mark.parametrize(("first", "last"), [(-5, 9), (0, 0), (2, 1), (3, 9)])
def test_an_end_ends_only_what_is_pending(first: int, last: int) -> None:
    world = letters_world("one", records=3)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 1, 1, REJECT)
    died = world.state.sequence
    end(world, first, last, died)
    end(world, first, last, died, partition=7)
    assert letters(world) == ([] if first <= 1 <= last else [(1, 1, 1, True)])
    assert world.shares.acknowledge("one", 2, 2, ACCEPT) == Rejection.NONE, "acquired records stay acquired"
    assert world.do(EndDeadLetters(world.now_ms, "none", [])) == Done()


def test_dead_letters_are_in_flight() -> None:
    world = letters_world("one", records=150, **{"share.partition.max.record.locks": "100"})
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 99, REJECT)
    assert world.shares.windows() == [], "the group waits for the writer of its dead letters"
    end(world, 0, 49, world.state.sequence)
    assert world.shares.windows() == [(100, 149)]


def test_a_view_is_bounded_and_the_next_one_continues() -> None:
    world = letters_world("one", records=700)
    world.shares.acquire("one", 700)
    world.shares.acknowledge("one", 0, 699, REJECT)
    assert letters(world) == [(0, DEAD_LETTERS_PER_VIEW_MAX - 1, 1, True)]
    end(world, 0, DEAD_LETTERS_PER_VIEW_MAX - 1, world.state.sequence)
    assert letters(world) == [(DEAD_LETTERS_PER_VIEW_MAX, 699, 1, True)]


def test_groups_are_listed_with_one_of_their_dead_letters() -> None:
    world = letters_world("one", records=2)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, REJECT)
    first_death = world.state.sequence
    assert groups(world) == [DeadLetterGroup("g", T, 0, DeadRecords(0, 0, first_death))]
    world.shares.acknowledge("one", 1, 1, REJECT)
    end(world, 0, 0, first_death)
    assert groups(world) == [DeadLetterGroup("g", T, 0, DeadRecords(1, 1, first_death + 1))]
    assert groups(world, after="g") == []


def test_replicas_list_the_same_dead_letter_of_a_group_also_after_a_snapshot() -> None:
    world = letters_world()
    world.topic("u", 2, number=2)
    world.shares.join("one", "u")
    for partition in (1, 0):
        world.produce(batch(), partition=partition, number=2)
        wanted = SharePartition(topic_id(2), partition, first=0, records_max=1)
        world.shares.records("one", wanted)
        rejected = msgspec.structs.replace(wanted, acknowledged=[AcknowledgedRange(0, 0, bytes([REJECT]))], first=-1)
        world.shares.records("one", rejected)
    replicas = (world.state, decode_state(encode_state(world.state)))
    first, second = (queries.QUERIES["dead_letter_groups"](each, DeadLetterGroupsQuery(0, "")) for each in replicas)
    assert first == second, "else gateways that ask them in turn would take the difference for progress"
    first, second = (queries.QUERIES["dead_letters"](each, DeadLettersQuery(0, "g")) for each in replicas)
    assert first == second and [each.partition for each in first.partitions] == [0, 1]


def test_dead_letters_survive_a_snapshot_and_the_last_member() -> None:
    world = letters_world("one", records=3)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 2, REJECT, ACCEPT, REJECT)
    died = world.state.sequence
    world.shares.leave("one")
    world.state = decode_state(encode_state(world.state))
    assert letters(world) == [(0, 0, 1, True), (2, 2, 1, True)]
    end(world, 0, 2, died)
    assert (world.shares.share.start, world.state.share_record_count) == (3, 0)


@pytest.mark.parametrize("how", ["group", "topic", "offsets"])
def test_dead_letters_go_with_their_group_topic_or_position(how: str) -> None:
    world = letters_world("one", records=1)
    world.shares.acquire("one")
    world.shares.acknowledge("one", 0, 0, REJECT)
    world.shares.leave("one")
    commands = {
        "group": DeleteGroup(world.now_ms, "g"),
        "topic": DeleteTopic(world.now_ms, "t", T),
        "offsets": AlterShareOffsets(world.now_ms, "g", [ShareOffset("t", 0, 0)]),
    }
    world.do(commands[how])
    assert (groups(world), letters(world)) == ([], [])


def test_the_view_has_the_configurations_in_force() -> None:
    world = letters_world("one", records=1)
    view = view_of(world)
    assert (view.topic, view.copies_records, view.prefix, view.creates_topics) == ("dlq.t", False, "dlq.", False)
    world.shares.configure(**{COPY: "true"})
    assert set_cluster(world, PREFIX, "") == Done()
    assert set_cluster(world, CREATE, "true") == Done()
    view = view_of(world)
    assert (view.copies_records, view.prefix, view.creates_topics) == (True, "", True)


@pytest.mark.parametrize("name", ["__dlq", "a b", "x" * 250, "."])
def test_topics_for_dead_letters_have_legal_names(name: str) -> None:
    world = letters_world("one")
    assert world.shares.configure(**{TOPIC: name}).rejection == Rejection.INVALID_CONFIG
    assert world.shares.configure(**{TOPIC: ""}) == Done()


@pytest.mark.parametrize("prefix", ["a b", "/", "x" * 249])
def test_the_prefix_is_the_beginning_of_a_topics_name(prefix: str) -> None:
    world = letters_world("one")
    assert set_cluster(world, PREFIX, prefix).rejection == Rejection.INVALID_CONFIG


def test_dead_letters_need_the_level_at_which_all_replicas_know_them() -> None:
    world = share_world("one")
    assert world.state.level == SHARE_GROUPS_LEVEL
    assert world.shares.configure(**{TOPIC: "dlq.t"}).rejection == Rejection.INVALID_CONFIG
    assert set_cluster(world, PREFIX, "").rejection == Rejection.INVALID_CONFIG
    assert world.topic("u", number=2, **{ALLOWED: "true"}).rejection == Rejection.INVALID_CONFIG
    world.do(RaiseLevel(world.now_ms, DEAD_LETTERS_LEVEL))
    assert world.topic("u", number=2, **{ALLOWED: "true"}).configs == {ALLOWED: "true"}
    assert level_of([EndDeadLetters(1, "g", [])]) == DEAD_LETTERS_LEVEL
