"""The topics a gateway knows: a cache over the `metadata` query, one query in flight, never remembering absence."""

import asyncio
from collections.abc import Iterable, Sequence

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, TopicView
from penstock.runtime.bus.sequencer_client import SequencerClient

TOPICS_MAX = 100_000  # about 100 MB of views; the oldest entries go first
NAMES_PER_QUERY_MAX = 1_000  # names of 249 letters and their views fit well into one message


class TopicCache:
    """Topics by name and by id; `remove` is called for every announced change, so an entry is never older than that."""

    def __init__(self, sequencer: SequencerClient) -> None:
        self._sequencer = sequencer
        self._by_name: dict[str, TopicView] = {}
        self._by_id: dict[TopicId, TopicView] = {}
        self._asking = asyncio.Lock()
        self._gathering: _Question | None = None
        self._changes = 0  # how often something was forgotten: a view asked for before that is not remembered

    def cached(self, name: str) -> TopicView | None:
        """The topic, if it is known here."""
        return self._by_name.get(name)

    def cached_id(self, topic_id: TopicId) -> TopicView | None:
        """The topic with this id, if it is known here."""
        return self._by_id.get(topic_id)

    async def find(self, names: Iterable[str]) -> dict[str, TopicView]:
        """Those of the topics that exist; `Unavailable` if a missing one could not be asked for."""
        found = {name: self._by_name.get(name) for name in names}
        missing = [name for name, view in found.items() if view is None]
        if missing:
            asked = await self._ask(missing, ())
            found |= {name: asked.names.get(name) for name in missing}
        return {name: view for name, view in found.items() if view is not None}

    async def find_ids(self, topic_ids: Iterable[TopicId]) -> dict[TopicId, TopicView]:
        """Those of the topics that exist; `Unavailable` if a missing one could not be asked for."""
        found = {topic_id: self._by_id.get(topic_id) for topic_id in topic_ids}
        missing = [topic_id for topic_id, view in found.items() if view is None]
        if missing:
            asked = await self._ask((), missing)
            found |= {topic_id: asked.ids.get(topic_id) for topic_id in missing}
        return {topic_id: view for topic_id, view in found.items() if view is not None}

    async def everything(self) -> list[TopicView]:
        """All topics, asked anew."""
        changes = self._changes
        view = await self._sequencer.query("metadata", MetadataQuery(0, None, fresh=True), MetadataView)
        self._remember(view.topics, changes)
        return view.topics

    def remove(self, names: Iterable[str]) -> None:
        """These topics were made, changed or deleted."""
        self._changes += 1
        for name in names:
            view = self._by_name.pop(name, None)
            if view is not None:
                self._by_id.pop(view.topic_id, None)

    def remove_all(self) -> None:
        """Any topic may have changed."""
        self._changes += 1
        self._by_name.clear()
        self._by_id.clear()

    async def _ask(self, names: Sequence[str], topic_ids: Sequence[TopicId]) -> "_Question":
        """Join the question that has not been sent yet; one that has been could miss what just happened."""
        question = self._gathering
        if question is None:
            question = self._gathering = _Question()
        question.names |= dict.fromkeys(names)
        question.ids |= dict.fromkeys(topic_ids)
        async with self._asking:
            if not question.is_answered:
                await self._send(question)
        if question.failure is not None:
            raise Unavailable(str(question.failure)) from question.failure
        return question

    async def _send(self, question: "_Question") -> None:
        """Send for everybody who joined; if the sender is cancelled, the next in line sends instead."""
        if self._gathering is question:
            self._gathering = None
        names, ids = list(question.names), list(question.ids)
        try:
            for start in range(0, max(len(names), len(ids)), NAMES_PER_QUERY_MAX):
                end = start + NAMES_PER_QUERY_MAX
                await self._send_some(question, names[start:end], ids[start:end])
        except Unavailable as error:
            question.failure = error
        question.is_answered = True

    async def _send_some(self, question: "_Question", names: list[str], topic_ids: list[TopicId]) -> None:
        """What is there now: a replica behind the others might not know a topic, or know one that was deleted since."""
        changes = self._changes
        view = await self._sequencer.query("metadata", MetadataQuery(0, names, topic_ids, fresh=True), MetadataView)
        self._remember(view.topics, changes)
        for topic in view.topics:
            question.names[topic.name] = topic
            question.ids[topic.topic_id] = topic

    def _remember(self, topics: Iterable[TopicView], changes: int) -> None:
        if changes != self._changes:
            return
        for view in topics:
            known = self._by_name.pop(view.name, None)
            if known is not None:
                self._by_id.pop(known.topic_id, None)
            self._by_name[view.name] = view
            self._by_id[view.topic_id] = view
        while len(self._by_name) > TOPICS_MAX:
            oldest = self._by_name.pop(next(iter(self._by_name)))
            self._by_id.pop(oldest.topic_id, None)


class _Question:
    """What several requests want to know; filled with the answers."""

    def __init__(self) -> None:
        self.is_answered = False
        self.failure: Unavailable | None = None
        self.names: dict[str, TopicView | None] = {}
        self.ids: dict[TopicId, TopicView | None] = {}
