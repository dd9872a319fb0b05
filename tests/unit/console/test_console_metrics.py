"""One console reports metrics of topics and groups, of no more than it may."""

import asyncio

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from penstock.contracts.commands import CommitOffsets, OffsetToCommit
from penstock_console.metrics import SurveyMetrics
from penstock_console.survey.survey import Survey, Surveyor
from tests.testkit.fakes.clock import ManualClock
from tests.unit.console.console_fakes import WorldSequencers
from tests.unit.sequencer.core.core_world import START_MS, World, batch

NAMES = {
    "penstock_topic_records_written",
    "penstock_topic_size_bytes",
    "penstock_topic_partitions",
    "penstock_topic_newest_timestamp_seconds",
    "penstock_group_lag_records",
    "penstock_group_lag_seconds",
    "penstock_group_members",
}


def survey_of(topics: int = 2) -> Survey:
    """Topic "t1" has one record, "t2" has two, and so on; the group of each topic has consumed none."""
    world = World()
    for number in range(1, topics + 1):
        world.topic(f"t{number}", partitions=2, number=number)
        world.produce(batch(number, timestamp=START_MS - 5_000), number=number)
        world.do(CommitOffsets(0, f"g{number}", -1, "", None, [OffsetToCommit(f"t{number}", 0, 0, -1, "")]))
    world.topic("empty", number=99)
    return asyncio.run(Surveyor(WorldSequencers(world), ManualClock()).take())


def metrics(survey: Survey | None, *, is_reporter: bool = True, rows_max: int = 10) -> dict[str, Metric]:
    collector = SurveyMetrics(lambda: survey, lambda: is_reporter, rows_max)
    return {each.name: each for each in collector.collect()}


def values(found: dict[str, Metric], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(each.labels.values()): each.value for each in found[name].samples}


def test_each_topic_and_each_pair_of_group_and_topic_has_its_metrics() -> None:
    found = metrics(survey_of())
    assert set(found) == NAMES
    assert values(found, "penstock_topic_records_written") == {("t1",): 1, ("t2",): 2, ("empty",): 0}
    assert values(found, "penstock_topic_size_bytes") == {("t1",): 100, ("t2",): 100, ("empty",): 0}
    assert values(found, "penstock_topic_partitions") == {("t1",): 2, ("t2",): 2, ("empty",): 1}
    assert values(found, "penstock_topic_newest_timestamp_seconds") == dict.fromkeys(
        [("t1",), ("t2",)], START_MS / 1000 - 5
    )
    assert values(found, "penstock_group_lag_records") == {("g1", "t1"): 1, ("g2", "t2"): 2}
    assert values(found, "penstock_group_lag_seconds") == {("g1", "t1"): 5, ("g2", "t2"): 5}
    assert values(found, "penstock_group_members") == {("g1", "classic"): 0, ("g2", "classic"): 0}


def test_the_written_records_are_a_counter_that_does_not_fall_with_retention() -> None:
    (written,) = [each for each in metrics(survey_of(1)).values() if each.type == "counter"]
    assert written.samples[0].name == "penstock_topic_records_written_total"


def test_with_a_bound_the_largest_topics_and_lags_are_reported() -> None:
    found = metrics(survey_of(6), rows_max=2)
    assert list(values(found, "penstock_topic_records_written")) == [("t6",), ("t5",)]
    assert list(values(found, "penstock_group_lag_records")) == [("g6", "t6"), ("g5", "t5")]
    assert all(len(each.samples) <= 2 for each in found.values())
    assert all(each.samples == [] for each in metrics(survey_of(), rows_max=0).values())


def test_only_the_first_console_reports() -> None:
    found = metrics(survey_of(), is_reporter=False)
    assert set(found) == NAMES and all(each.samples == [] for each in found.values())


def test_another_console_does_not_even_want_a_survey() -> None:
    asked: list[str] = []
    collector = SurveyMetrics(lambda: asked.append("survey"), lambda: False, 10)
    registry = CollectorRegistry()
    registry.register(collector)
    list(registry.collect())
    assert asked == []


def test_without_a_survey_the_names_are_there() -> None:
    found = metrics(None)
    assert set(found) == NAMES and all(each.samples == [] for each in found.values())
