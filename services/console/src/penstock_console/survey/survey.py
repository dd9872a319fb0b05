"""Topics and groups as the sequencers know them, with rates from one survey to the next."""

from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import msgspec

from penstock.contracts.queries.survey import (
    UNKNOWN_TIME,
    GroupSurvey,
    GroupSurveyQuery,
    GroupSurveyView,
    GroupTopicSurvey,
    TopicSurvey,
    TopicSurveyQuery,
    TopicSurveyView,
)
from penstock.runtime.bus.listings import Sequencers
from penstock.runtime.clock import Clock
from penstock_console.survey.background import computed

QUERY_DEADLINE_S = 10.0


class SurveyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far back rates and trends reach."""

    rate_window_s: float = 60.0
    rate_points_max: int = 8
    trend_points_max: int = 40  # of each group


DEFAULT_LIMITS = SurveyLimits()


class Totals(msgspec.Struct, frozen=True):
    """The sums over the partitions of a topic."""

    records: int  # offsets between log start and high watermark
    written: int  # offsets ever assigned
    size_bytes: int


class Survey(msgspec.Struct, frozen=True):
    """All topics and groups at one time."""

    taken_ms: int  # by the state machine's clock
    taken_s: float
    topics: Mapping[str, TopicSurvey]
    totals: Mapping[str, Totals]
    groups: Mapping[str, GroupSurvey]
    groups_of_topic: Mapping[str, list[str]]
    records_per_s: Mapping[str, float]  # written, by topic; nothing in the first survey
    trends: Mapping[str, "array[int]"]  # total lags of each group in earlier surveys, the newest last
    by_written: Sequence[str]  # names of topics, the largest number of offsets first
    by_lag: Sequence[tuple[int, GroupSurvey, GroupTopicSurvey]]  # groups in topics with their lag, the largest first


class Surveyor:
    """Takes surveys, and remembers as much as rates and trends need."""

    def __init__(self, sequencers: Sequencers, clock: Clock, *, limits: SurveyLimits = DEFAULT_LIMITS) -> None:
        self._sequencers = sequencers
        self._clock = clock
        self._limits = limits
        self._written: list[tuple[float, Mapping[str, int]]] = []
        self._trends: dict[str, array[int]] = {}

    async def take(self) -> Survey:
        """A new survey; `Unavailable` if no sequencer answers."""
        now_ms = 0
        topics: dict[str, TopicSurvey] = {}
        async for topic_page in self._topic_pages():
            now_ms = max(now_ms, topic_page.clock_ms)
            topics |= {each.name: each for each in topic_page.topics}
        groups: dict[str, GroupSurvey] = {}
        async for group_page in self._group_pages():
            groups |= {each.group_id: each for each in group_page.groups}
        return await computed(len(topics) + len(groups), partial(self._survey, now_ms, topics, groups))

    def _survey(self, now_ms: int, topics: Mapping[str, TopicSurvey], groups: Mapping[str, GroupSurvey]) -> Survey:
        totals = {name: _totals(each) for name, each in topics.items()}
        now_s = self._clock.monotonic_s()
        rates = self._rates(now_s, {name: each.written for name, each in totals.items()})
        self._record_trends(groups)
        return Survey(
            taken_ms=now_ms,
            taken_s=now_s,
            topics=topics,
            totals=totals,
            groups=groups,
            groups_of_topic=_by_topic(groups),
            records_per_s=rates,
            trends=dict(self._trends),
            by_written=sorted(topics, key=lambda name: -totals[name].written),
            by_lag=_by_lag(groups),
        )

    async def _topic_pages(self) -> AsyncIterator[TopicSurveyView]:
        query = TopicSurveyQuery(0, fresh=True)
        while True:
            page = await self._sequencers.query("topic_survey", query, TopicSurveyView, deadline_s=QUERY_DEADLINE_S)
            yield page
            if not page.is_more:
                return
            query = TopicSurveyQuery(0, page.topics[-1].name)

    async def _group_pages(self) -> AsyncIterator[GroupSurveyView]:
        query = GroupSurveyQuery(0)
        while True:
            page = await self._sequencers.query("group_survey", query, GroupSurveyView, deadline_s=QUERY_DEADLINE_S)
            yield page
            if not page.is_more:
                return
            query = GroupSurveyQuery(0, page.groups[-1].group_id)

    def _rates(self, now_s: float, written: Mapping[str, int]) -> dict[str, float]:
        """Records per second by topic, since the oldest survey in the window."""
        limits = self._limits
        recent = [each for each in self._written if now_s - each[0] <= limits.rate_window_s]
        self._written = [*recent, (now_s, written)][-limits.rate_points_max :]
        if not recent or now_s <= recent[0][0]:
            return {}
        first_s, first = recent[0]
        return {
            name: (count - first[name]) / (now_s - first_s) if count >= first[name] else 0.0
            for name, count in written.items()
            if name in first
        }

    def _record_trends(self, groups: Mapping[str, GroupSurvey]) -> None:
        trends: dict[str, array[int]] = {}
        for name, group in groups.items():
            points = self._trends.get(name) or array("q")
            trends[name] = (points + array("q", [lag_of(group)]))[-self._limits.trend_points_max :]
        self._trends = trends


def lag_of(group: GroupSurvey) -> int:
    """The lag of a group in all partitions."""
    return sum(sum(topic.lags) for topic in group.topics)


def behind_ms_of(topic: GroupTopicSurvey, now_ms: int) -> int:
    """The age of the oldest record of a topic that a group has not consumed; 0 if there is none."""
    times = [time for time in topic.oldest_ms if time != UNKNOWN_TIME]
    return max(now_ms - min(times), 0) if times else 0


def _totals(topic: TopicSurvey) -> Totals:
    written = sum(topic.high_watermarks)
    return Totals(written - sum(topic.log_start_offsets), written, sum(topic.size_bytes))


def _by_lag(groups: Mapping[str, GroupSurvey]) -> list[tuple[int, GroupSurvey, GroupTopicSurvey]]:
    found = [(sum(topic.lags), group, topic) for group in groups.values() for topic in group.topics]
    return sorted(found, key=lambda each: -each[0])


def _by_topic(groups: Mapping[str, GroupSurvey]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, group in groups.items():
        for topic in group.topics:
            found.setdefault(topic.topic, []).append(name)
    return found
