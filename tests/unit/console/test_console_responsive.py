"""Long lists of topics and groups are read and sorted in a thread, so that other pages do not wait."""

import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.survey import (
    GroupSurvey,
    GroupSurveyView,
    GroupTopicSurvey,
    TopicSurvey,
    TopicSurveyView,
)
from penstock.runtime.bus.listings import Sequencers
from penstock.runtime.bus.sequencer_client import View
from penstock_console.metrics import SurveyMetrics
from penstock_console.pages import groups, topics
from penstock_console.pages.context import ListQuery, Request
from penstock_console.survey.survey import Survey, Surveyor
from tests.testkit.fakes.clock import ManualClock
from tests.unit.console.console_rig import LOGIN

COUNT = 1_001
REQUEST = Request(LOGIN)


class Watched(list[int]):
    """Numbers that know which threads have read them."""

    readers: set[threading.Thread]

    def __iter__(self) -> Iterator[int]:
        self.readers.add(threading.current_thread())
        return super().__iter__()


class LongLists:
    """Sequencers with many topics and groups, and the sources of pages over them."""

    def __init__(self) -> None:
        self.readers: set[threading.Thread] = set()
        self.survey = self.kafka = self

    def numbers(self, count: int = 1) -> list[int]:
        found = Watched([1] * count)
        found.readers = self.readers
        return found

    async def query(
        self, name: str, query: msgspec.Struct, view: type[View], *, deadline_s: float | None = None
    ) -> View:
        numbers = self.numbers
        if name == "topic_survey":
            rows = [TopicSurvey(f"t{each}", b"", {}, numbers(), numbers(), numbers(), 1) for each in range(COUNT)]
            return cast(View, TopicSurveyView(1, 1, rows))
        lags = [
            GroupTopicSurvey("t0", [*range(COUNT)], numbers(COUNT), numbers(COUNT), numbers(COUNT)),
            GroupTopicSurvey("t1", [0], numbers(), numbers(), numbers()),
        ]
        found = [GroupSurvey(f"g{each}", "classic", "", 0, lags) for each in range(COUNT)]
        return cast(View, GroupSurveyView(1, 1, found))

    async def current(self) -> Survey:
        return await Surveyor(cast(Sequencers, self), ManualClock()).take()

    async def with_item(self, _: Callable[[Survey], bool]) -> Survey:
        return await self.current()

    async def call(self, *_: object) -> None:
        raise Unavailable("no gateway answers")


@pytest.mark.parametrize(
    "read",
    [
        lambda lists: lists.current(),
        lambda lists: topics.topics(lists, REQUEST, ListQuery()),
        lambda lists: groups.groups(lists, REQUEST, ListQuery()),
        lambda lists: groups.group(lists, REQUEST, "g0"),
    ],
    ids=["survey", "topics", "groups", "group"],
)
async def test_long_lists_are_read_in_a_thread(read: Callable[[Any], Awaitable[object]]) -> None:
    lists = LongLists()
    await read(lists)
    assert lists.readers and threading.current_thread() not in lists.readers


async def test_metrics_read_no_more_topics_and_groups_than_they_report() -> None:
    lists = LongLists()
    survey = await lists.current()
    lists.readers.clear()
    assert [each.samples for each in SurveyMetrics(lambda: survey, lambda: True, 0).collect()] == [[]] * 7
    assert not lists.readers
