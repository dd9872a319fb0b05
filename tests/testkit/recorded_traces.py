"""Traces of OpenTelemetry whose ended spans stay in memory, with parents and links by name."""

import random
from collections.abc import Mapping

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.runtime.clock import Clock
from penstock.runtime.traces.otel import OtelTraces


class SeededEntropy:
    """The same random bytes in each test."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def take(self, count: int) -> bytes:
        return self._random.randbytes(count)


class RecordedTraces(OtelTraces):
    """Traces that a test looks at."""

    def __init__(self, clock: Clock, ratio: float = 1.0, resource: Mapping[str, str] | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        processor = SimpleSpanProcessor(self._exporter)
        super().__init__(
            ratio=ratio, resource=resource or {}, clock=clock, entropy=SeededEntropy(), processor=processor
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """All ended spans, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        """The only span with this name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def parents(self) -> dict[str, str]:
        """The name of each span, and the name of its parent; "" for a root or a span of another process."""
        names = {span.context.span_id: span.name for span in self.spans}
        return {span.name: names.get(span.parent.span_id, "") if span.parent else "" for span in self.spans}


def seconds_of(span: ReadableSpan) -> float:
    """How long the span lasted."""
    return (span.end_time - span.start_time) / 1e9


def facts_of(span: ReadableSpan) -> dict[str, object]:
    """The facts of the span, without the prefix of their names."""
    return {name.removeprefix("penstock."): value for name, value in (span.attributes or {}).items()}


def traceparent(number: int) -> str:
    """The span of a sampled request in another process; the number is its trace and its span."""
    return f"00-{number:032x}-{number:016x}-01"
