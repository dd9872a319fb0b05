"""A cache of topics over the `metadata` query: one query in flight, and no entries for topics that do not exist."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView
from penstock.runtime.bus.listings import all_topics
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.concurrency.slices import Slices

TOPICS_MAX = 100_000  # about 100 MB of views; the oldest entries are evicted first
NAMES_PER_QUERY_MAX = 1_000  # names of 249 letters and their views fit well into one message


class TopicCache:
    """Topics by name and by id; every announced change calls `remove`, so an entry is never older than that."""

    def __init__(self, sequencer: SequencerClient) -> None:
        self._sequencer = sequencer
        self._by_name: dict[str, TopicView] = {}
        self._by_id: dict[TopicId, TopicView] = {}
        self._query_lock = asyncio.Lock()
        self._unsent: _SharedQuery | None = None
        self._changes = 0  # counts removals: the view of a query that was sent before a removal is not cached

    def cached(self, name: str) -> TopicView | None:
        """The topic, if it is cached."""
        return self._by_name.get(name)

    def cached_id(self, topic_id: TopicId) -> TopicView | None:
        """The topic with this id, if it is cached."""
        return self._by_id.get(topic_id)

    async def find(self, names: Iterable[str]) -> dict[str, TopicView]:
        """The topics that exist; `Unavailable` if one that is not cached cannot be queried."""
        slices = Slices()
        found = {name: self._by_name.get(name) async for name in slices.of(names)}
        missing = [name for name, view in found.items() if view is None]
        if missing:
            query = await self._query(missing, ())
            found |= {name: query.names.get(name) async for name in slices.of(missing)}
        return {name: view async for name, view in slices.of(found.items()) if view is not None}

    async def find_ids(self, topic_ids: Iterable[TopicId]) -> dict[TopicId, TopicView]:
        """The topics that exist; `Unavailable` if one that is not cached cannot be queried."""
        found = {topic_id: self._by_id.get(topic_id) for topic_id in topic_ids}
        missing = [topic_id for topic_id, view in found.items() if view is None]
        if missing:
            query = await self._query((), missing)
            found |= {topic_id: query.ids.get(topic_id) for topic_id in missing}
        return {topic_id: view for topic_id, view in found.items() if view is not None}

    async def everything(self) -> list[TopicView]:
        """All topics, from new queries; see `listings` for topics that are created or deleted meanwhile."""
        changes = self._changes
        topics = await all_topics(self._sequencer, fresh=True)
        self._record(topics, changes)
        return topics

    def remove(self, names: Iterable[str]) -> None:
        """Remove topics that were created, changed or deleted."""
        self._changes += 1
        for name in names:
            view = self._by_name.pop(name, None)
            if view is not None:
                self._by_id.pop(view.topic_id, None)

    def remove_all(self) -> None:
        """Remove all topics, because any may have changed."""
        self._changes += 1
        self._by_name.clear()
        self._by_id.clear()

    async def _query(self, names: Sequence[str], topic_ids: Sequence[TopicId]) -> "_SharedQuery":
        """Join the query that was not sent yet; one already sent could miss a change that just happened."""
        query = self._unsent
        if query is None:
            query = self._unsent = _SharedQuery()
        with query.joined(names, topic_ids):
            async with self._query_lock:
                if not query.is_answered:
                    await self._send(query)
        if query.failure is not None:
            raise Unavailable(str(query.failure)) from query.failure
        return query

    async def _send(self, query: "_SharedQuery") -> None:
        """Send for all requests that joined; if the sender is cancelled, the next waiting request sends instead."""
        if self._unsent is query:
            self._unsent = None
        names, ids = query.wanted()
        try:
            for start in range(0, max(len(names), len(ids)), NAMES_PER_QUERY_MAX):
                end = start + NAMES_PER_QUERY_MAX
                await self._send_some(query, names[start:end], ids[start:end])
        except Unavailable as error:
            query.failure = error
        query.is_answered = True

    async def _send_some(self, query: "_SharedQuery", names: list[str], topic_ids: list[TopicId]) -> None:
        """Query fresh topics: a replica that lags may miss a new topic, or still have one that was deleted since."""
        changes = self._changes
        view = await self._sequencer.query("metadata", MetadataQuery(0, names, topic_ids, fresh=True), MetadataView)
        self._record(view.topics, changes)
        for topic in view.topics:
            query.names[topic.name] = topic
            query.ids[topic.topic_id] = topic

    def _record(self, topics: Iterable[TopicView], changes: int) -> None:
        if changes != self._changes:
            return
        for view in topics:
            known = self._by_name.pop(view.name, None)
            if known is not None:
                self._by_id.pop(known.topic_id, None)
            self._by_name[view.name] = view
            self._by_id[view.topic_id] = view
        # Not one by one: the search for the first entry of a dict passes over all that were removed before it.
        for name in list(itertools.islice(self._by_name, max(len(self._by_name) - TOPICS_MAX, 0))):
            self._by_id.pop(self._by_name.pop(name).topic_id, None)


class _SharedQuery:
    """One query for several requests, with its answers."""

    def __init__(self) -> None:
        self.is_answered = False
        self.failure: Unavailable | None = None
        self.names: dict[str, TopicView] = {}
        self.ids: dict[TopicId, TopicView] = {}
        self._joined: dict[object, tuple[Sequence[str], Sequence[TopicId]]] = {}

    @contextmanager
    def joined(self, names: Sequence[str], topic_ids: Sequence[TopicId]) -> Iterator[None]:
        """Ask for these topics, too, within the block. A request whose client has left asks for none."""
        request = object()
        self._joined[request] = names, topic_ids
        try:
            yield
        finally:
            del self._joined[request]

    def wanted(self) -> tuple[list[str], list[TopicId]]:
        """The names and the ids of all requests that wait for the answer."""
        names = itertools.chain.from_iterable(names for names, _ in self._joined.values())
        ids = itertools.chain.from_iterable(ids for _, ids in self._joined.values())
        return list(dict.fromkeys(names)), list(dict.fromkeys(ids))
