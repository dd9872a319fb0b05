"""Metrics of topics and groups, from one console of the cluster."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock_console.survey.survey import Survey, behind_ms_of


class SurveyMetrics(prometheus_client.registry.Collector):
    """The newest survey as metrics, unless another console reports it; the largest topics and lags if it is bounded."""

    def __init__(self, newest: Callable[[], Survey | None], is_reporter: Callable[[], bool], rows_max: int) -> None:
        """`rows_max` bounds the topics, and the pairs of group and topic."""
        self._newest = newest
        self._is_reporter = is_reporter
        self._rows_max = rows_max

    def collect(self) -> Iterable[Metric]:
        """All samples; the names also without a survey."""
        survey = self._newest() if self._is_reporter() else None
        yield from self._topics(survey)
        yield from self._groups(survey)

    def _topics(self, survey: Survey | None) -> Sequence[Metric]:
        written = CounterMetricFamily(
            "penstock_topic_records_written", "Offsets assigned in a topic, over its whole life.", labels=["topic"]
        )
        size = GaugeMetricFamily("penstock_topic_size_bytes", "Bytes of a topic's live records.", labels=["topic"])
        partitions = GaugeMetricFamily("penstock_topic_partitions", "Partitions of a topic.", labels=["topic"])
        newest = GaugeMetricFamily(
            "penstock_topic_newest_timestamp_seconds",
            "Newest timestamp of a topic's records, in seconds since 1970.",
            labels=["topic"],
        )
        if survey is not None:
            for name in survey.by_written[: self._rows_max]:
                topic, totals = survey.topics[name], survey.totals[name]
                written.add_metric([name], totals.written)
                size.add_metric([name], totals.size_bytes)
                partitions.add_metric([name], len(topic.size_bytes))
                if topic.newest_ms >= 0:
                    newest.add_metric([name], topic.newest_ms / 1000)
        return written, size, partitions, newest

    def _groups(self, survey: Survey | None) -> Sequence[Metric]:
        lag = GaugeMetricFamily(
            "penstock_group_lag_records", "Records that a group has not consumed.", labels=["group", "topic"]
        )
        behind = GaugeMetricFamily(
            "penstock_group_lag_seconds",
            "Estimated age of the oldest record that a group has not consumed.",
            labels=["group", "topic"],
        )
        members = GaugeMetricFamily("penstock_group_members", "Members of a group.", labels=["group", "kind"])
        if survey is not None:
            for count, group, topic in survey.by_lag[: self._rows_max]:
                lag.add_metric([group.group_id, topic.topic], count)
                behind.add_metric([group.group_id, topic.topic], behind_ms_of(topic, survey.taken_ms) / 1000)
            for group in islice(survey.groups.values(), self._rows_max):
                members.add_metric([group.group_id, group.kind], group.members)
        return lag, behind, members
