"""Consoles survey topics with their offsets and sizes, and groups of all kinds with their lag and its age."""

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.commands import (
    AcknowledgeType,
    AlterConfigs,
    CommitOffsets,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    DeleteGroup,
    DeleteRecords,
    DeleteTopic,
    LogOffset,
    OffsetToCommit,
    RaiseLevel,
    UndeleteTopic,
)
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.levels import CONSUMER_GROUPS_LEVEL, JANITOR_LEVEL, SHARE_GROUPS_LEVEL
from penstock.contracts.queries.groups import GroupsQuery
from penstock.contracts.queries.survey import (
    UNKNOWN_TIME,
    GroupSurvey,
    GroupSurveyQuery,
    GroupTopicSurvey,
    TopicSurvey,
    TopicSurveyQuery,
)
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.cluster import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    Committed,
    Member,
    Topic,
)
from penstock_sequencer.core.state.consumer_group import ASSIGNING, RECONCILING, ConsumerGroup, ConsumerMember
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from penstock_sequencer.core.state.share_group import SharePartition
from tests.unit.sequencer.core.core_world import START_MS, World, batch, share_world, topic_id, transaction_world

FEW = settings(max_examples=30)


def topics(world: World, after: str = "") -> list[TopicSurvey]:
    view = queries.QUERIES["topic_survey"](world.state, TopicSurveyQuery(0, after))
    assert (view.sequence, view.clock_ms) == (world.state.sequence, world.state.clock_ms)
    return list(view.topics)


def groups(world: World) -> dict[str, GroupSurvey]:
    view = queries.QUERIES["group_survey"](world.state, GroupSurveyQuery(0))
    assert (view.sequence, view.clock_ms) == (world.state.sequence, world.state.clock_ms)
    return {each.group_id: each for each in view.groups}


def the_group(world: World) -> GroupSurvey:
    (found,) = groups(world).values()
    return found


def the_topic(world: World) -> GroupTopicSurvey:
    (found,) = the_group(world).topics
    return found


def write(world: World, *times_ms: int, records: int = 10) -> None:
    """One extent for each time."""
    for time_ms in times_ms:
        world.produce(batch(records, timestamp=START_MS + time_ms))


def cut(world: World, offset: int) -> None:
    world.do(DeleteRecords(world.now_ms, [LogOffset(topic_id(1), 0, offset)]))


def oldest(world: World, offset: int) -> int:
    """The estimated time of the first record from an offset on, since START_MS."""
    world.commit_offset(offset)
    (found,) = the_topic(world).oldest_ms
    return found if found == UNKNOWN_TIME else found - START_MS


def test_a_topic_has_the_offsets_and_sizes_of_each_partition_and_the_values_that_were_set() -> None:
    world = World(level=JANITOR_LEVEL)
    world.topic("b", partitions=2, number=1, **{"retention.ms": "5000"})
    world.topic("a", number=2)
    world.produce(batch(3, length=70, timestamp=START_MS + 9), partition=1)
    world.produce(batch(2, length=50, timestamp=START_MS + 4), partition=1)
    a, b = topics(world)
    assert a == TopicSurvey("a", topic_id(2), {}, [0], [0], [0], UNKNOWN_TIME)
    assert b == TopicSurvey("b", topic_id(1), {"retention.ms": "5000"}, [0, 0], [0, 5], [0, 120], START_MS + 9)


def test_the_newest_time_is_that_of_records_that_are_still_there() -> None:
    """A record from far in the future is removed with its extent; the search index keeps its time for longer."""
    world = World()
    world.topic()
    write(world, 1_000_000, 5, 6)
    assert topics(world)[0].newest_ms == START_MS + 1_000_000
    cut(world, 10)
    survey = topics(world)[0]
    assert (survey.log_start_offsets, survey.newest_ms) == ([10], START_MS + 6)
    cut(world, 30)
    survey = topics(world)[0]
    assert (survey.log_start_offsets, survey.high_watermarks, survey.newest_ms) == ([30], [30], UNKNOWN_TIME)


def test_a_recoverable_topic_is_in_no_survey_and_comes_back_as_it_was() -> None:
    world = World()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    window = ConfigChange("penstock.undelete.window.ms", ConfigOperation.SET, "60000")
    world.do(AlterConfigs(world.now_ms, "", [window]))
    world.topic()
    write(world, 0)
    world.commit_offset(4)
    before, lag = topics(world), the_topic(world)
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert topics(world) == []
    assert [each.topics for each in groups(world).values()] in ([], [[]])
    world.do(UndeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert (topics(world), the_topic(world)) == (before, lag)


def test_a_classic_group_has_its_state_members_and_lag() -> None:
    world = World()
    world.topic(partitions=3)
    world.produce(batch(8), partition=2)
    world.commit_offset(5, partition=2)
    world.commit_offset(0, partition=0)
    expected = GroupTopicSurvey("t", [2, 0], [5, 0], [3, 0], [START_MS, UNKNOWN_TIME])
    assert the_group(world) == GroupSurvey("g", "classic", "Empty", 0, [expected])
    world.classic.join("m1")
    assert the_group(world) == GroupSurvey("g", "classic", "PreparingRebalance", 1, [expected])


def test_a_consumer_group_has_its_state_members_and_lag() -> None:
    world = World()
    world.do(RaiseLevel(world.now_ms, CONSUMER_GROUPS_LEVEL))
    world.topic()
    write(world, 0)
    world.consumers.join("one", "t")
    world.consumers.join("two", "t")
    found = the_group(world)
    summary = queries.groups(world.state, GroupsQuery(0, [])).groups[0]
    assert (found.kind, found.state, found.members, found.topics) == ("consumer", summary.state, 2, [])


def test_a_share_group_has_the_first_offset_that_is_not_done() -> None:
    world = share_world("one", records=10)
    assert the_group(world) == GroupSurvey(
        "g", "share", "Stable", 1, [GroupTopicSurvey("t", [0], [0], [10], [START_MS])]
    )
    world.shares.acquire("one", 4)
    world.shares.acknowledge("one", 0, 3, *[AcknowledgeType.ACCEPT] * 4)
    assert the_topic(world).offsets == [4]
    assert the_topic(world).lags == [6]
    world.shares.leave("one")
    assert (the_group(world).state, the_group(world).members) == ("Empty", 0)


def test_a_group_without_offsets_and_members_has_no_lag() -> None:
    world = World()
    world.commit_offset(5, topic="unknown")
    assert the_group(world) == GroupSurvey("g", "classic", "Empty", 0, [])


@pytest.mark.parametrize(
    ("offset", "lag", "oldest_ms"),
    [(0, 20, 20), (9, 20, 20), (10, 20, 20), (15, 15, 20), (20, 10, 21), (29, 1, 30), (30, 0, -1), (99, 0, -1)],
)
def test_lag_begins_at_the_log_start_and_ends_at_the_high_watermark(offset: int, lag: int, oldest_ms: int) -> None:
    """An offset below the log start counts from there; one beyond the end has no lag."""
    world = World()
    world.topic()
    write(world, 20, 20, 30)
    cut(world, 10)
    world.commit_offset(offset)
    found = the_topic(world)
    oldest_ms = oldest_ms if oldest_ms < 0 else START_MS + oldest_ms
    assert (found.offsets, found.lags, found.oldest_ms) == ([offset], [lag], [oldest_ms])


def test_a_deleted_topic_and_the_next_of_its_name_have_no_lag_of_old_offsets() -> None:
    world = World()
    world.topic(partitions=3)
    world.produce(batch(5), partition=2)
    world.commit_offset(2, partition=2)
    world.do(DeleteTopic(world.now_ms, "t", NO_TOPIC_ID))
    assert the_group(world).topics == []
    world.topic(number=2)
    assert the_group(world).topics == []


def test_offsets_of_topics_and_partitions_that_do_not_exist_are_left_out() -> None:
    """No command makes such offsets; a survey must not fail because of them."""
    world = World()
    world.topic()
    world.commit_offset(0)
    offsets = world.group().offsets
    offsets["t"][7] = offsets["t"][0]
    offsets["gone"] = {0: offsets["t"][0]}
    assert [(each.topic, each.partitions) for each in the_group(world).topics] == [("t", [0])]


def test_new_partitions_have_no_lag_until_the_group_has_an_offset_there() -> None:
    world = World()
    world.topic()
    write(world, 0)
    world.commit_offset(4)
    world.do(CreatePartitions(world.now_ms, "t", 3))
    assert the_topic(world).partitions == [0]


def test_the_time_at_an_offset_is_its_share_of_the_way_between_two_extents() -> None:
    world = World()
    world.topic()
    write(world, 1_000, 2_000, 2_000, 1_500, 4_000)
    first_extent, rising, equal, falling = oldest(world, 5), oldest(world, 14), oldest(world, 25), oldest(world, 35)
    assert (first_extent, rising, equal, falling) == (1_000, 1_500, 2_000, 1_500)
    assert [oldest(world, offset) for offset in (40, 44, 49)] == [1_750, 2_750, 4_000]
    assert oldest(world, 50) == UNKNOWN_TIME


def test_records_without_times_have_no_age() -> None:
    world = World()
    world.topic()
    world.produce(batch(10, timestamp=-1))
    world.commit_offset(3)
    assert (the_topic(world).lags, the_topic(world).oldest_ms) == ([7], [UNKNOWN_TIME])
    assert topics(world)[0].newest_ms == UNKNOWN_TIME


def test_markers_have_no_time_so_that_of_the_records_around_them_counts() -> None:
    world = transaction_world()
    writer = world.transactions.init()
    for sequence, time_ms in ((0, 1_000), (10, 2_000)):
        world.transactions.add(writer)
        records = world.transactions.of(writer, sequence, records=10)
        world.produce(msgspec.structs.replace(records, max_timestamp=START_MS + time_ms))
        world.transactions.end(writer)
    assert list(world.partition().extents.last_offsets) == [9, 10, 20, 21]
    assert [oldest(world, offset) for offset in (9, 10, 11, 15, 20)] == [1_000, 1_100, 1_100, 1_500, 2_000]
    assert oldest(world, 21) == UNKNOWN_TIME
    assert the_topic(world).lags == [1]
    assert topics(world)[0].newest_ms == START_MS + 2_000
    cut(world, 21)
    assert topics(world)[0].newest_ms == UNKNOWN_TIME


def test_after_a_compaction_the_estimate_is_between_the_times_of_the_extents_that_are_left() -> None:
    world = World()
    world.topic()
    write(world, 1_000, 2_000, 3_000, 4_000, 5_000)
    before = [oldest(world, offset) for offset in range(50)]
    world.do(world.job((1, 0, 1, 4)))
    after = [oldest(world, offset) for offset in range(50)]
    assert (after[:10], after[40:]) == (before[:10], before[40:])
    assert all(1_000 < each <= 4_000 for each in after[10:40])
    assert after == sorted(after)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 50)), min_size=1, max_size=12), st.data())
def test_the_estimate_is_never_outside_the_times_of_an_extent_and_the_one_before(
    written: list[tuple[int, int]], data: st.DataObject
) -> None:
    world = World()
    world.topic()
    for records, time_ms in written:
        world.produce(batch(records, timestamp=time_ms))
    end = sum(records for records, _ in written)
    for _ in range(data.draw(st.integers(0, 2), label="compactions")):
        count = len(world.extents())
        first = data.draw(st.integers(0, count - 1))
        world.do(world.job((1, 0, first, data.draw(st.integers(first + 1, count)))))
    cut(world, data.draw(st.integers(0, end), label="log start"))
    offset = data.draw(st.integers(0, end + 2), label="offset")
    world.commit_offset(offset)
    (found,), (lag,) = the_topic(world).oldest_ms, the_topic(world).lags
    extents = world.partition().extents
    row = extents.find_offset(max(offset, world.partition().log_start_offset))
    if row == extents.end:
        assert (found, lag) == (UNKNOWN_TIME, 0)
        return
    times = sorted(extents.timestamps[max(row - 1, extents.head) : row + 1])
    assert times[0] <= found <= times[-1]
    assert lag > 0


def listed(world: World, name: str, changes: list[Callable[[], Any]]) -> list[str]:
    """The names of all pages of a survey; one of the changes is made after each page."""
    found: list[str] = []
    while True:
        after = found[-1] if found else ""
        if name == "topics":
            view = queries.QUERIES["topic_survey"](world.state, TopicSurveyQuery(0, after))
            names = [each.name for each in view.topics]
        else:
            view = queries.QUERIES["group_survey"](world.state, GroupSurveyQuery(0, after))
            names = [each.group_id for each in view.groups]
        assert names or not view.is_more, "each page but the last has an item"
        found += names
        if not view.is_more:
            return found
        if changes:
            changes.pop()()


def add(world: World, kind: str, name: str, number: int) -> None:
    if kind == "topics":
        world.topic(name, number=number)
    elif number % 2:
        world.do(CommitOffsets(0, name, -1, "", None, [OffsetToCommit("t", 0, 1, -1, "")]))
    else:
        world.shares.join(f"member-{number}", group_id=name)


def remove(world: World, kind: str, name: str) -> None:
    world.do(DeleteTopic(0, name, NO_TOPIC_ID) if kind == "topics" else DeleteGroup(0, name))


@pytest.mark.parametrize("kind", ["topics", "groups"])
@FEW
@given(
    kept=st.sets(st.sampled_from("abcdefgh"), max_size=6),
    others=st.lists(st.sampled_from("ijklmnop012345"), unique=True, max_size=10),
    limits=st.sampled_from([{"names_listed_max": 1}, {"names_listed_max": 3}, {"listed_bytes_max": 150}]),
)
def test_what_exists_during_a_whole_survey_is_in_it_once(
    kind: str, kept: set[str], others: list[str], limits: dict[str, int]
) -> None:
    """Other topics and groups are created and deleted between the pages."""
    world = World(Limits(answers=AnswerLimits(**limits)))
    world.do(RaiseLevel(world.now_ms, SHARE_GROUPS_LEVEL))
    if kind == "groups":
        world.topic(number=999)
    for number, name in enumerate([*kept, *others[::2]], 1):
        add(world, kind, name, number)
    changes: list[Callable[[], Any]] = [functools.partial(remove, world, kind, name) for name in others[::2]]
    changes += [functools.partial(add, world, kind, name, 100 + each) for each, name in enumerate(others[1::2])]
    found = listed(world, kind, changes)
    assert len(found) == len(set(found))
    assert kept <= set(found) <= kept | set(others)


def fills_a_page(world: World, query: str, kind: Callable[[int], Any], list_name: str) -> bool:
    """Whether the first item alone fills a page of its own size: its estimate is no less than its bytes."""
    (first, *others) = getattr(queries.QUERIES[query](world.state, kind(0)), list_name)
    assert others, "there is a second item"
    size_bytes = len(msgspec.msgpack.encode(first))
    world.use_limits(Limits(answers=AnswerLimits(listed_bytes_max=size_bytes)))
    view = queries.QUERIES[query](world.state, kind(0))
    return getattr(view, list_name) == [first] and bool(view.is_more)


NUMBERS = st.sampled_from([0, 200, 70_000, 2**40, 2**62])  # of each length in bytes
TEXTS = st.sampled_from(["", "a", "b" * 40, "c" * 300, "\u00e9", "\U0010ffff" * 70])


@FEW
@given(st.dictionaries(TEXTS, TEXTS, max_size=4), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=10))
def test_the_estimated_size_of_a_topic_is_no_less_than_its_size(
    configs: dict[str, str], partitions: list[tuple[int, int, int]]
) -> None:
    world = World()
    world.topic("a", partitions=len(partitions) or 1, number=1)
    world.topic("b", number=2)
    world.state.topics["a"].configs = configs
    for partition, (start, more, size_bytes) in zip(world.state.topics["a"].partitions, partitions, strict=False):
        partition.log_start_offset, partition.high_watermark = start, start + more
        partition.size_bytes = size_bytes
    assert fills_a_page(world, "topic_survey", TopicSurveyQuery, "topics")


@FEW
@given(
    st.dictionaries(TEXTS, st.lists(NUMBERS, max_size=20), max_size=5),
    st.text(min_size=1, max_size=40),
    st.sampled_from([EMPTY, PREPARING, COMPLETING, STABLE, ASSIGNING, RECONCILING]),
    st.sampled_from([0, 1, 300]),
    st.booleans(),
)
def test_the_estimated_size_of_a_group_is_no_less_than_its_size(
    offsets: dict[str, list[int]], name: str, state: str, members: int, is_consumer: bool
) -> None:
    world = World()
    world.topic("t")
    world.do(CommitOffsets(0, name, -1, "", None, [OffsetToCommit("t", 0, 1, -1, "")]))
    world.do(CommitOffsets(0, "\U0010ffff" * 300, -1, "", None, [OffsetToCommit("t", 0, 1, -1, "")]))
    group = world.group(name)
    group.state = state
    (partition,) = world.state.topics["t"].partitions
    partition.extents.append(0, 2**62, 0, 0, 1, 2**62)
    partition.high_watermark = 2**62
    group.offsets = {}
    for topic, committed in offsets.items():
        world.state.topics[topic] = Topic(topic, topic_id(1), [partition] * len(committed), {})
        group.offsets[topic] = {number: Committed(offset, -1, "") for number, offset in enumerate(committed)}
    names = [str(number) for number in range(members)]
    if is_consumer:
        one = ConsumerMember("m", None, None, "", "", 0, [], "", "", 0)
        group.consumer = ConsumerGroup(0, 0, "", dict.fromkeys(names, one))
    else:
        group.members = dict.fromkeys(names, Member("m", None, "", "", 0, 0, [], 0))
    assert fills_a_page(world, "group_survey", GroupSurveyQuery, "groups")


@FEW
@given(st.lists(st.tuples(NUMBERS, st.integers(1, 30)), max_size=4), st.integers(0, 300))
def test_the_estimated_size_of_a_share_group_is_no_less_than_its_size(
    shares: list[tuple[int, int]], members: int
) -> None:
    world = share_world("one")
    world.do(CommitOffsets(0, "h", -1, "", None, [OffsetToCommit("t", 0, 1, -1, "")]))
    group = world.shares.group
    (partition,) = world.state.topics["t"].partitions
    partition.extents.append(0, 2**62, 0, 0, 1, 2**62)
    partition.high_watermark = 2**62
    for number, (start, count) in enumerate(shares, 2):
        world.state.topics_by_id[topic_id(number)] = Topic("\U0010ffff", topic_id(number), [partition] * count, {})
        group.partitions[topic_id(number)] = {each: SharePartition(start) for each in range(count)}
    group.members |= {str(each): group.members["one"] for each in range(members)}
    assert fills_a_page(world, "group_survey", GroupSurveyQuery, "groups")


def test_a_long_survey_has_pages_no_longer_than_a_message_may_be() -> None:
    limit_bytes = 6_000
    world = World(Limits(answers=AnswerLimits(listed_bytes_max=limit_bytes)))
    for number in range(1, 60):
        world.topic(f"{number:03}{'x' * 100}", number=number)
    after, pages = "", []
    while True:
        view = queries.QUERIES["topic_survey"](world.state, TopicSurveyQuery(0, after))
        pages.append(len(msgspec.msgpack.encode(view)))
        if not view.is_more:
            break
        after = view.topics[-1].name
    assert len(pages) > 1
    assert max(pages) < limit_bytes + 300
