"""Whole lists from the sequencers, read page by page: one message does not hold 100,000 long names.

The pages reflect the state at different times. An item that exists during the whole listing is listed exactly once. An
item that is created or deleted meanwhile may be listed or not. The first page has all changes that were acknowledged
before the listing, if it is `fresh`. Later pages are never older than the first.

A sequencer of an earlier release answers any page with the whole list, if that fits a message. So the items are kept by
name, and the last answer for a name counts.
"""

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

import msgspec

from penstock.contracts.queries.groups import (
    GroupConfigsQuery,
    GroupConfigsView,
    GroupsQuery,
    GroupSummary,
    GroupsView,
)
from penstock.contracts.queries.log import LogSizes, LogSizesQuery, LogSizesView
from penstock.contracts.queries.share import ShareOffsetsQuery, ShareOffsetsView, ShareOffsetView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView
from penstock.runtime.bus.sequencer_client import View

Page = TypeVar("Page", MetadataView, GroupsView, GroupConfigsView, LogSizesView, ShareOffsetsView)


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


async def _pages(
    sequencers: Sequencers,
    name: str,
    query: msgspec.Struct,
    view: type[Page],
    name_of_last: Callable[[Page], str],
    *,
    deadline_s: float | None = None,
) -> AsyncIterator[Page]:
    """The pages of an answer. Only the first one needs to be fresh: each later one is at least as recent."""
    while True:
        page = await sequencers.query(name, query, view, deadline_s=deadline_s)
        yield page
        if not page.is_more:
            return
        query = msgspec.structs.replace(query, fresh=False, after=name_of_last(page))
