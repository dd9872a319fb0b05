"""Whole lists come in pages, so that no list is too long for one message of the bus."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.commands import (
    AlterGroupConfigs,
    AlterShareOffsets,
    Command,
    CommitOffsets,
    ConfigChange,
    ConfigOperation,
    DeleteTopic,
    OffsetToCommit,
    ShareOffset,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.queries.groups import (
    GroupConfigsQuery,
    GroupConfigsView,
    GroupOffsetsQuery,
    GroupOffsetsView,
    GroupsQuery,
    GroupsView,
    GroupTopicPartitions,
)
from penstock.contracts.queries.log import LogSizesQuery, LogSizesView
from penstock.contracts.queries.share import ShareOffsetsQuery, ShareOffsetsView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.listings import (
    OFFSETS_ASKED_MAX,
    all_configured_groups,
    all_group_offsets,
    all_groups,
    all_log_sizes,
    all_share_offsets,
    all_topics,
)
from penstock.runtime.bus.sequencer_client import View
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from penstock_sequencer.limits import SequencerLimits
from penstock_sequencer.serving.query_table import QUERY_HANDLERS, QueryHandler
from penstock_sequencer.serving.request_server import RequestServer
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.core.core_world import World
from tests.unit.sequencer.sequencer_rig import SequencerRig, rig

ITEMS = 120
MESSAGE_BYTES_MAX = 12_000
PAGES = AnswerLimits(names_listed_max=50, listed_bytes_max=6_000)
LIMITS = SequencerLimits(core=Limits(answers=PAGES))
NAMES = [f"{number:03}{'x' * 197}" for number in range(ITEMS)]
DEADLINE_S = 0.02
LEVEL_S = 15.0  # the cluster has reached the newest level
AUTO_OFFSET_RESET = [ConfigChange("share.auto.offset.reset", ConfigOperation.SET, "earliest")]


async def fill(one: SequencerRig, command_of: Callable[[str], Command]) -> None:
    for name in reversed(NAMES):
        await one.client.command([command_of(name)], deadline_s=5)


async def names_of(listing: Awaitable[list[Any]]) -> list[str]:
    return [each if isinstance(each, str) else getattr(each, each.__struct_fields__[0]) for each in await listing]


def topic_with_id(one: SequencerRig, name: str) -> Command:
    return msgspec.structs.replace(one.create_topic(name), topic_id=one.topic_id(name[:3]))


def commit_of(group_id: str) -> Command:
    return CommitOffsets(0, group_id, -1, "", None, [OffsetToCommit("t", 0, 1, -1, "")])


@in_virtual_time
async def test_all_topics_and_their_sizes_are_listed_though_no_message_holds_them() -> None:
    async with rig("a", limits=LIMITS) as one:
        one.hub.message_bytes_max = MESSAGE_BYTES_MAX
        await fill(one, functools.partial(topic_with_id, one))
        with pytest.raises(Unavailable, match="over the 12000 that a message holds"):
            await one.client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=DEADLINE_S)
        with pytest.raises(Unavailable, match="over the 12000 that a message holds"):
            await one.client.query("log_sizes", LogSizesQuery(0, None), LogSizesView, deadline_s=DEADLINE_S)
        assert await names_of(all_topics(one.client, fresh=True)) == NAMES
        assert await names_of(all_log_sizes(one.client, 5)) == NAMES


@in_virtual_time
async def test_all_groups_are_listed_though_no_message_holds_them() -> None:
    async with rig("a", limits=LIMITS) as one:
        one.hub.message_bytes_max = MESSAGE_BYTES_MAX
        await one.client.command([one.create_topic("t")], deadline_s=5)
        await fill(one, commit_of)
        with pytest.raises(Unavailable, match="over the 12000 that a message holds"):
            await one.client.query("groups", GroupsQuery(0, []), GroupsView, deadline_s=DEADLINE_S)
        assert await names_of(all_groups(one.client, [])) == NAMES
        assert await names_of(all_groups(one.client, ["Empty"])) == NAMES
        assert await names_of(all_groups(one.client, ["Stable"])) == []


@in_virtual_time
async def test_all_groups_with_configurations_are_listed_though_no_message_holds_them() -> None:
    async with rig("a", limits=LIMITS) as one:
        one.hub.message_bytes_max = MESSAGE_BYTES_MAX
        await asyncio.sleep(LEVEL_S)
        await fill(one, lambda group_id: AlterGroupConfigs(0, group_id, AUTO_OFFSET_RESET))
        with pytest.raises(Unavailable, match="over the 12000 that a message holds"):
            query = GroupConfigsQuery(0, [])
            await one.client.query("group_configs", query, GroupConfigsView, deadline_s=DEADLINE_S)
        assert await all_configured_groups(one.client, 5) == NAMES


@in_virtual_time
async def test_all_offsets_of_a_share_group_are_listed_though_no_message_holds_them() -> None:
    async with rig("a", limits=LIMITS) as one:
        one.hub.message_bytes_max = MESSAGE_BYTES_MAX
        await asyncio.sleep(LEVEL_S)
        await fill(one, functools.partial(topic_with_id, one))
        await fill(one, lambda name: AlterShareOffsets(0, "g", [ShareOffset(name, 0, 7)]))
        with pytest.raises(Unavailable, match="over the 12000 that a message holds"):
            query = ShareOffsetsQuery(0, "g", None)
            await one.client.query("share_offsets", query, ShareOffsetsView, deadline_s=DEADLINE_S)
        view = await all_share_offsets(one.client, "g")
        assert [(each.topic, each.partition, each.start_offset) for each in view.offsets] == [
            (name, 0, 7) for name in NAMES
        ]
        assert (await all_share_offsets(one.client, "absent")).rejection == Rejection.UNKNOWN_GROUP


@in_virtual_time
async def test_all_and_named_offsets_of_a_group_are_listed_though_no_message_holds_them() -> None:
    async with rig("a", limits=LIMITS) as one:
        one.hub.message_bytes_max = MESSAGE_BYTES_MAX
        await fill(one, functools.partial(topic_with_id, one))
        await fill(one, lambda name: CommitOffsets(0, "g", -1, "", None, [OffsetToCommit(name, 0, 7, -1, "x" * 100)]))
        everything = GroupOffsetsQuery(0, "g", None)
        with pytest.raises(Unavailable, match="over the 12000 that a message holds"):
            await one.client.query("group_offsets", everything, GroupOffsetsView, deadline_s=DEADLINE_S)
        view = await all_group_offsets(one.client, everything)
        assert [(each.topic, each.partition, each.offset) for each in view.offsets] == [(name, 0, 7) for name in NAMES]
        some = [GroupTopicPartitions(name, [1, 0]) for name in reversed(NAMES[::3])]
        view = await all_group_offsets(one.client, GroupOffsetsQuery(0, "g", some))
        assert [(each.topic, each.partition, each.offset) for each in view.offsets] == [
            (name, *found) for name in reversed(NAMES[::3]) for found in ((1, -1), (0, 7))
        ]
        assert (await all_group_offsets(one.client, GroupOffsetsQuery(0, "absent", None))).offsets == []


@in_virtual_time
async def test_the_offsets_of_more_partitions_than_one_query_names_are_all_asked_for() -> None:
    async with rig("a") as one:
        numbers = range(OFFSETS_ASKED_MAX * 2)
        named = [GroupTopicPartitions("t", [*numbers]), GroupTopicPartitions("u", []), GroupTopicPartitions("v", [7])]
        view = await all_group_offsets(one.client, GroupOffsetsQuery(0, "g", named))
        places = [(each.topic, each.partition) for each in view.offsets]
        assert places == [*(("t", number) for number in numbers), ("v", 7)]


@in_virtual_time
async def test_a_replica_of_an_earlier_release_may_answer_any_page() -> None:
    """It does not know the cursor, and answers with all topics."""
    answered = 0

    def every_second_is_old(state: Any, query: MetadataQuery) -> MetadataView:
        nonlocal answered
        answered += 1
        return queries.metadata(state, query if answered % 2 else msgspec.structs.replace(query, after=None))

    handler = QueryHandler(MetadataQuery, every_second_is_old, QUERY_HANDLERS["metadata"].fail)
    async with rig(limits=LIMITS) as one:
        one.make_request_server = functools.partial(RequestServer, queries=QUERY_HANDLERS | {"metadata": handler})
        await one.start("a")
        await fill(one, functools.partial(topic_with_id, one))
        assert sorted(await names_of(all_topics(one.client))) == NAMES
        assert answered == 2


class ChangingWorld:
    """Sequencers whose topics change between two pages."""

    def __init__(self, world: World, changes: list[Callable[[], Any]]) -> None:
        self._world = world
        self._changes = changes

    async def query(
        self, name: str, query: msgspec.Struct, view: type[View], *, deadline_s: float | None = None
    ) -> Any:
        answer = queries.QUERIES[name](self._world.state, query)
        if self._changes:
            self._changes.pop()()
        return answer


@given(
    kept=st.sets(st.sampled_from("abcdefgh"), max_size=6),
    others=st.lists(st.sampled_from("ijklmnop012345"), unique=True, max_size=10),
    per_page=st.integers(1, 4),
)
async def test_what_exists_during_the_whole_listing_is_listed_once(
    kept: set[str], others: list[str], per_page: int
) -> None:
    """Other topics are created and deleted between the pages."""
    world = World(Limits(answers=AnswerLimits(names_listed_max=per_page)))
    for number, name in enumerate([*kept, *others[::2]], 1):
        world.topic(name, number=number)
    changes: list[Callable[[], Any]] = [
        functools.partial(world.do, DeleteTopic(0, name, NO_TOPIC_ID)) for name in others[::2]
    ]
    changes += [functools.partial(world.topic, name, number=100 + number) for number, name in enumerate(others[1::2])]
    listed = await names_of(all_topics(ChangingWorld(world, changes)))
    assert len(listed) == len(set(listed))
    assert kept <= set(listed) <= kept | set(others)


def test_a_page_ends_at_the_number_and_at_the_size_that_an_answer_may_have() -> None:
    world = World(Limits(answers=AnswerLimits(names_listed_max=3, listed_bytes_max=120)))
    for number, name in enumerate(["b", "a", "c" * 200, "e", "d", "f"], 1):
        world.topic(name, number=number)

    def page(after: str) -> tuple[str, bool]:
        view = queries.metadata(world.state, MetadataQuery(0, None, after=after))
        return "".join(topic.name[0] for topic in view.topics), view.is_more

    assert [page(after) for after in ("", "b", "c" * 200, "e", "f")] == [
        ("ab", True),
        ("c", True),
        ("de", True),
        ("f", False),
        ("", False),
    ]


def test_a_group_without_a_name_is_listed_too() -> None:
    world = World(Limits(answers=AnswerLimits(names_listed_max=2)))
    world.topic()
    for group_id in ("", "a", "b"):
        world.do(commit_of(group_id))
    first = queries.groups(world.state, GroupsQuery(0, [], after=""))
    assert ([group.group_id for group in first.groups], first.is_more) == (["", "a"], True)
    last = queries.groups(world.state, GroupsQuery(0, [], after="a"))
    assert ([group.group_id for group in last.groups], last.is_more) == (["b"], False)
