"""Bytes that clients wrote to and read from each topic, for a limited number of topics.

The first topics with bytes get a series each. The bytes of all later topics are in one series. A topic that is deleted
or changed loses its series with the next scrape, unless clients still use it: then another topic can have its place.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

TOPICS_MAX = 100  # two series for each topic, at each gateway
OTHERS = "(others)"  # no topic can have parentheses in its name


@dataclass(slots=True)
class _Counted:
    """The bytes of one topic."""

    produced: int = 0
    read: int = 0
    is_unsure: bool = False  # it was announced as changed, perhaps deleted, and had no bytes since


class TopicBytes(Collector):
    """The bytes of each topic; an addition costs one search in a dict."""

    def __init__(self, registry: CollectorRegistry, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._topics: dict[str, _Counted] = {}
        self._others = _Counted()
        if topics_max:
            registry.register(self)

    def add_produced(self, topic: str, size_bytes: int) -> None:
        """Count record bytes that are handed to flushers."""
        self._counted(topic).produced += size_bytes

    def add_read(self, topic: str, size_bytes: int) -> None:
        """Count record bytes in an answer to a consumer."""
        self._counted(topic).read += size_bytes

    def record_changed(self, topics: Iterable[str]) -> None:
        """Record that these topics were created, changed or deleted."""
        for topic in topics:
            if topic in self._topics:
                self._topics[topic].is_unsure = True

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Nothing: the series depend on the topics."""
        return ()

    def collect(self) -> Iterator[CounterMetricFamily]:
        produced = CounterMetricFamily(
            "penstock_gateway_topic_produced_bytes",
            "Record bytes handed to flushers, by topic; `(others)` sums the topics above `metrics_topics_max`.",
            labels=["topic"],
        )
        read = CounterMetricFamily(
            "penstock_gateway_topic_read_bytes",
            "Record bytes in answers to consumers and share groups, by topic; `(others)` sums the topics above "
            "`metrics_topics_max`.",
            labels=["topic"],
        )
        shown = list(self._topics.items())
        if self._others.produced or self._others.read:
            shown.append((OTHERS, self._others))
        for topic, counted in shown:
            produced.add_metric((topic,), counted.produced)
            read.add_metric((topic,), counted.read)
            if counted.is_unsure:
                del self._topics[topic]
        yield from (produced, read)

    def _counted(self, topic: str) -> _Counted:
        counted = self._topics.get(topic)
        if counted is None:
            if len(self._topics) >= self._topics_max:
                return self._others
            counted = self._topics[topic] = _Counted()
        counted.is_unsure = False
        return counted
