"""Whole lists from the sequencers, read page by page: one message does not hold 100,000 long names.

The pages reflect the state at different times. An item that exists during the whole listing is listed exactly once. An
item that is created or deleted meanwhile may be listed or not. The first page has all changes that were acknowledged
before the listing, if it is `fresh`. Later pages are never older than the first.

A sequencer of an earlier release answers any page with the whole list, if that fits a message. So the items are kept by
name, and the last answer for a name counts.
"""

from collections.abc import AsyncIterator, Callable
from itertools import groupby, islice
from typing import Protocol, TypeVar

import msgspec

from penstock.contracts.queries.groups import (
    CommittedOffset,
    GroupConfigsQuery,
    GroupConfigsView,
    GroupOffsetsQuery,
    GroupOffsetsView,
    GroupsQuery,
    GroupSummary,
    GroupsView,
    GroupTopicPartitions,
)
from penstock.contracts.queries.log import LogSizes, LogSizesQuery, LogSizesView
from penstock.contracts.queries.share import ShareOffsetsQuery, ShareOffsetsView, ShareOffsetView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView
from penstock.runtime.bus.sequencer_client import View

OFFSETS_ASKED_MAX = 10_000  # in one query; the answer is a page anyway
_BEFORE_ALL = ("", -1)

Page = TypeVar("Page", MetadataView, GroupsView, GroupConfigsView, GroupOffsetsView, LogSizesView, ShareOffsetsView)


class Sequencers(Protocol):
    """The part of `SequencerClient` that listings use."""

    async def query(
        self, name: str, query: msgspec.Struct, view: type[View], *, deadline_s: float | None = None
    ) -> View:
        """The answer to a query."""
        ...


async def all_topics(sequencers: Sequencers, *, fresh: bool = False) -> list[TopicView]:
    """All topics; `Unavailable` if a page cannot be queried."""
    found: dict[str, TopicView] = {}
    query = MetadataQuery(0, None, fresh=fresh, after="")
    async for view in _pages(sequencers, "metadata", query, MetadataView, lambda last: last.topics[-1].name):
        found |= {topic.name: topic for topic in view.topics}
    return list(found.values())


async def all_groups(sequencers: Sequencers, states: list[str]) -> list[GroupSummary]:
    """All groups in one of the states, with no states all groups; `Unavailable` if a page cannot be queried."""
    found: dict[str, GroupSummary] = {}
    query = GroupsQuery(0, states, fresh=True, after="")
    async for view in _pages(sequencers, "groups", query, GroupsView, lambda last: last.groups[-1].group_id):
        found |= {group.group_id: group for group in view.groups}
    return list(found.values())


async def all_configured_groups(sequencers: Sequencers, deadline_s: float) -> list[str]:
    """The ids of all groups with configurations; `Unavailable` if a page cannot be queried within the deadline."""
    found: dict[str, None] = {}
    query = GroupConfigsQuery(0, [], fresh=True, after="")
    pages = _pages(
        sequencers, "group_configs", query, GroupConfigsView, lambda last: last.group_ids[-1], deadline_s=deadline_s
    )
    async for view in pages:
        found |= dict.fromkeys(view.group_ids)
    return list(found)


async def all_log_sizes(sequencers: Sequencers, deadline_s: float) -> list[LogSizes]:
    """The log sizes of all topics; `Unavailable` if a page cannot be queried within the deadline."""
    found: dict[str, LogSizes] = {}
    query = LogSizesQuery(0, None, fresh=True, after="")
    pages = _pages(
        sequencers, "log_sizes", query, LogSizesView, lambda last: last.topics[-1].name, deadline_s=deadline_s
    )
    async for view in pages:
        found |= {topic.name: topic for topic in view.topics}
    return list(found.values())


async def all_share_offsets(sequencers: Sequencers, group_id: str) -> ShareOffsetsView:
    """The offsets of a share group in all its partitions, or its rejection; `Unavailable` as for the other lists."""
    query = ShareOffsetsQuery(0, group_id, None, fresh=True, after="")
    pages = _pages(sequencers, "share_offsets", query, ShareOffsetsView, lambda last: last.offsets[-1].topic)
    found: dict[tuple[str, int], ShareOffsetView] = {}
    sequence = 0
    async for view in pages:
        if view.rejection:
            return view
        sequence = view.sequence
        found |= {(each.topic, each.partition): each for each in view.offsets}
    return ShareOffsetsView(sequence, list(found.values()))


async def all_group_offsets(sequencers: Sequencers, query: GroupOffsetsQuery) -> GroupOffsetsView:
    """The committed offsets that a query asks for, or its rejection; `Unavailable` as for the other lists."""
    if query.topics is not None:
        return await _named_group_offsets(sequencers, query, query.topics)
    found: dict[tuple[str, int], CommittedOffset] = {}
    sequence = 0
    query = msgspec.structs.replace(query, after=_BEFORE_ALL)
    async for view in _pages(sequencers, "group_offsets", query, GroupOffsetsView, _last_offset):
        if view.rejection:
            return view
        sequence = view.sequence
        found |= {(each.topic, each.partition): each for each in view.offsets}
    return GroupOffsetsView(sequence, list(found.values()))


async def _named_group_offsets(
    sequencers: Sequencers, query: GroupOffsetsQuery, topics: list[GroupTopicPartitions]
) -> GroupOffsetsView:
    places = ((each.topic, number) for each in topics for number in each.partitions)
    part = list(islice(places, OFFSETS_ASKED_MAX))
    found: list[CommittedOffset] = []
    while True:
        named = groupby(part, key=lambda place: place[0])
        asked = [GroupTopicPartitions(topic, [number for _, number in some]) for topic, some in named]
        query = msgspec.structs.replace(query, topics=asked, after=_BEFORE_ALL, fresh=query.fresh and not found)
        view = await sequencers.query("group_offsets", query, GroupOffsetsView)
        found += view.offsets
        part = part[len(view.offsets) :] or list(islice(places, OFFSETS_ASKED_MAX))
        if view.rejection or not part:
            return msgspec.structs.replace(view, offsets=found, is_more=False)


def _last_offset(page: GroupOffsetsView) -> tuple[str, int]:
    return page.offsets[-1].topic, page.offsets[-1].partition


async def _pages(
    sequencers: Sequencers,
    name: str,
    query: msgspec.Struct,
    view: type[Page],
    last_of: Callable[[Page], str | tuple[str, int]],
    *,
    deadline_s: float | None = None,
) -> AsyncIterator[Page]:
    """The pages of an answer. Only the first one needs to be fresh: each later one is at least as recent."""
    while True:
        page = await sequencers.query(name, query, view, deadline_s=deadline_s)
        yield page
        if not page.is_more:
            return
        query = msgspec.structs.replace(query, fresh=False, after=last_of(page))
