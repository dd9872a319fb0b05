"""A surveyor reads all topics and groups, with rates and trends since earlier surveys."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.commands import Command, CommitOffsets, CreateTopic, DeleteTopic, OffsetToCommit
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.contracts.queries.survey import TopicSurveyQuery
from penstock.runtime.bus.sequencer_client import View
from penstock_console.survey.survey import Survey, SurveyLimits, Surveyor, behind_ms_of, lag_of
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from penstock_sequencer.limits import SequencerLimits
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.console.console_fakes import WorldSequencers
from tests.unit.sequencer.core.core_world import START_MS, World, batch
from tests.unit.sequencer.sequencer_rig import SequencerRig, rig

LIMITS = SequencerLimits(core=Limits(answers=AnswerLimits(listed_bytes_max=6_000)))
MESSAGE_BYTES_MAX = 12_000
DEADLINE_S = 0.02


class RecordingSequencers(WorldSequencers):
    """Keeps all queries."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.asked: list[msgspec.Struct] = []

    async def query(
        self, name: str, query: msgspec.Struct, view: type[View], *, deadline_s: float | None = None
    ) -> View:
        self.asked.append(query)
        return await super().query(name, query, view, deadline_s=deadline_s)


def commit(group_id: str, topic: str = "t", offset: int = 0) -> CommitOffsets:
    return CommitOffsets(0, group_id, -1, "", None, [OffsetToCommit(topic, 0, offset, -1, "")])


def surveyor_of(one: SequencerRig, limits: SurveyLimits | None = None) -> Surveyor:
    return Surveyor(one.client, one.clock, limits=limits or SurveyLimits())


async def send(one: SequencerRig, *commands: Command) -> None:
    for command in commands:
        await one.client.command([command], deadline_s=5)


@in_virtual_time
async def test_a_survey_has_all_topics_and_groups_with_sums_and_the_groups_of_each_topic() -> None:
    async with rig("a") as one:
        await send(one, one.create_topic("t", 2), one.create_topic("u"), one.commit("t", 3), one.commit("u", 2))
        await send(one, commit("g"), commit("h", offset=2), commit("h", "u", 2))
        survey = await surveyor_of(one).take()
        assert {name: (each.records, each.written, each.size_bytes) for name, each in survey.totals.items()} == {
            "t": (3, 3, 300),
            "u": (2, 2, 200),
        }
        assert survey.groups_of_topic == {"t": ["g", "h"], "u": ["h"]}
        assert {name: lag_of(each) for name, each in survey.groups.items()} == {"g": 3, "h": 1}
        assert survey.records_per_s == {}


@in_virtual_time
async def test_a_survey_of_more_than_a_message_holds_is_whole() -> None:
    names = [f"{number:03}{'x' * 197}" for number in range(80)]
    async with rig("a", "b", limits=LIMITS) as one:
        one.hub.message_bytes_max = MESSAGE_BYTES_MAX
        await send(one, one.create_topic("t"))
        for name in reversed(names):
            await send(one, CreateTopic(0, name, one.topic_id(name[:3]), 1, {}), commit(name))
        survey = await surveyor_of(one).take()
        assert (list(survey.topics), list(survey.groups)) == ([*names, "t"], names)


@in_virtual_time
async def test_a_survey_fails_if_no_sequencer_answers() -> None:
    async with rig("a") as one:
        await one.kill("a")
        with pytest.raises(Unavailable):
            await surveyor_of(one).take()


@in_virtual_time
async def test_rates_are_over_the_surveys_of_a_window() -> None:
    async with rig("a") as one:
        surveyor = surveyor_of(one, SurveyLimits(rate_window_s=60, rate_points_max=3))
        await send(one, one.create_topic("t"))
        await surveyor.take()
        rates = []
        for records in (20, 0, 0, 40):
            await asyncio.sleep(10)
            if records:
                await send(one, one.commit("t", records))
            rates.append((await surveyor.take()).records_per_s["t"])
        assert rates == pytest.approx([2.0, 1.0, 20 / 30, 40 / 30], rel=0.01)
        await asyncio.sleep(61)
        assert (await surveyor.take()).records_per_s == {}, "all earlier surveys are too old"


@in_virtual_time
async def test_a_topic_that_was_made_again_has_no_negative_rate() -> None:
    async with rig("a") as one:
        surveyor = surveyor_of(one)
        await send(one, one.create_topic("t"), one.commit("t", 50))
        await surveyor.take()
        await asyncio.sleep(10)
        again = CreateTopic(0, "t", one.topic_id("again"), 1, {})
        await send(one, DeleteTopic(0, "t", NO_TOPIC_ID), again, one.create_topic("new"))
        survey = await surveyor.take()
        assert survey.records_per_s == {"t": 0.0}


def test_the_age_of_a_lag_is_that_of_the_oldest_record_that_is_not_consumed() -> None:
    world = World()
    world.topic(partitions=2)
    world.produce(batch(1, timestamp=START_MS + 2_000))
    world.produce(batch(1, timestamp=START_MS + 5_000), partition=1)
    world.commit_offset(0)
    world.commit_offset(0, partition=1)
    survey = asyncio.run(Surveyor(WorldSequencers(world), ManualClock()).take())
    (topic,) = survey.groups["g"].topics
    assert behind_ms_of(topic, START_MS + 10_000) == 8_000
    assert behind_ms_of(topic, START_MS) == 0, "records from the future have no age"
    world.commit_offset(1)
    world.commit_offset(1, partition=1)
    survey = asyncio.run(Surveyor(WorldSequencers(world), ManualClock()).take())
    assert behind_ms_of(survey.groups["g"].topics[0], START_MS + 10_000) == 0


@settings(max_examples=30)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 5))
def test_trends_and_rates_keep_no_more_points_than_their_limits(
    written: list[int], trend_points_max: int, rate_points_max: int
) -> None:
    world, clock = World(), ManualClock()
    limits = SurveyLimits(rate_points_max=rate_points_max, trend_points_max=trend_points_max, rate_window_s=1_000)
    surveyor = Surveyor(WorldSequencers(world), clock, limits=limits)
    world.topic()
    world.commit_offset(0)
    lags, surveys = [0], [asyncio.run(surveyor.take())]
    for records in written:
        clock.now_s += 10
        if records:
            world.produce(batch(records))
        lags.append(lags[-1] + records)
        surveys.append(asyncio.run(surveyor.take()))
    assert [list(each.trends["g"]) for each in surveys] == [
        lags[max(0, end - trend_points_max) : end] for end in range(1, len(lags) + 1)
    ], "a survey does not change any more"
    span = min(len(written), rate_points_max)
    assert surveys[-1].records_per_s["t"] == pytest.approx((lags[-1] - lags[-1 - span]) / (10 * span))


def test_a_group_that_is_gone_has_no_trend() -> None:
    world = World()
    world.topic()
    world.commit_offset(0)
    surveyor = Surveyor(WorldSequencers(world), ManualClock())
    first: Survey = asyncio.run(surveyor.take())
    del world.state.groups["g"]
    second = asyncio.run(surveyor.take())
    assert (list(first.trends), list(second.trends), list(first.trends["g"])) == (["g"], [], [0])


async def test_the_first_page_has_all_changes_that_were_acknowledged_before() -> None:
    sequencers = RecordingSequencers(World())
    await Surveyor(sequencers, ManualClock()).take()
    assert sequencers.asked[0] == TopicSurveyQuery(0, fresh=True)
