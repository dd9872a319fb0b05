"""Traces with the SDK of OpenTelemetry: sampled by a ratio, sent in batches over OTLP and HTTP.

The SDK reads its own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and others). Its queue of ended spans is bounded: if the
collector is slow or gone, spans are dropped, and no request waits.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec
import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.runtime.clock import Clock, Entropy, fraction
from penstock.runtime.traces.traces import Fact, Span, current_trace, within

TRACEPARENT = "traceparent"

log = structlog.get_logger()
_propagator = TraceContextTextMapPropagator()


class OtelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of traces that are not OpenTelemetry's own settings."""

    clock_step_ns: int = 5_000_000  # the wall clock went back by more against the monotonic one: times follow it
    clock_looks: int = 2_000  # at the start, more than a millisecond of them: see `_look`
    close_s: float = 1.0  # to send the last spans at the end of the process
    fact_length_max: int = 256  # characters: clients choose their ids


class OtelTraces:
    """Spans of one service."""

    is_on = True

    def __init__(
        self,
        *,
        ratio: float,
        resource: Mapping[str, str],
        clock: Clock,
        entropy: Entropy,
        processor: SpanProcessor | None = None,
        limits: OtelLimits | None = None,
    ) -> None:
        """`resource` describes the service; `processor` takes ended spans, by default one that sends them."""
        self._ratio = ratio
        self._clock = clock
        self._entropy = entropy
        self._limits = limits or OtelLimits()
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_ON),
            resource=Resource.create(dict(resource)),
            span_limits=SpanLimits(max_span_attribute_length=self._limits.fact_length_max),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("penstock")
        self._zero_ns = 0  # the wall clock's time when the monotonic clock showed 0
        for _ in range(self._limits.clock_looks):
            self._look()

    def root(self, name: str, began_s: float, **facts: Fact) -> AbstractContextManager[None]:
        # The choice stands before the SDK, whose sampler would cost each request twenty times as much.
        if fraction(self._entropy) >= self._ratio:
            return within("")
        span = self._start(name, began_s, Context(), (), facts, trace.SpanKind.SERVER)
        return self._lasting(_OtelSpan(self, span)) if span.is_recording() else within("")

    def stage(self, name: str, **facts: Fact) -> AbstractContextManager[None]:
        parent = current_trace()
        span = self.begin(name, self._clock.monotonic_s(), parent, (), **facts) if parent else None
        return nullcontext() if span is None else self._lasting(span)

    def begin(self, name: str, began_s: float, parent: str, links: Sequence[str] = (), **facts: Fact) -> Span | None:
        context = _propagator.extract({TRACEPARENT: parent}, Context()) if parent else Context()
        if not trace.get_current_span(context).get_span_context().is_valid:
            return None
        span = self._start(name, began_s, context, links, facts, trace.SpanKind.INTERNAL)
        return _OtelSpan(self, span) if span.is_recording() else None

    async def close(self) -> None:
        # A thread of its own: the collector may not answer, and the process would wait for a thread of a pool.
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()

        def close() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=close, name="traces", daemon=True).start()
        try:
            async with asyncio.timeout(self._limits.close_s):
                await closed.wait()
        except TimeoutError:
            log.warning("spans_not_sent", waited_s=self._limits.close_s)

    def unix_ns(self, at_s: float) -> int:
        """A time of the monotonic clock as nanoseconds since 1970. Durations are those of the monotonic clock."""
        self._look()
        return _ns(at_s) + self._zero_ns

    def _look(self) -> None:
        """Learn how the two clocks differ.

        The wall clock shows whole milliseconds, so no look gives too much. The largest of many gives the most exact
        difference, and spans of several processes on one machine fit together.
        """
        zero_ns = self._clock.now_ms() * 1_000_000 - _ns(self._clock.monotonic_s())
        if not self._zero_ns - self._limits.clock_step_ns <= zero_ns <= self._zero_ns:
            self._zero_ns = zero_ns

    @contextmanager
    def _lasting(self, span: Span) -> Iterator[None]:
        failure = ""
        try:
            with within(span.trace):
                yield
        except BaseException as error:  # also a cancellation; all are raised again
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            span.end(self._clock.monotonic_s(), failure=failure)

    def _start(
        self,
        name: str,
        began_s: float,
        parent: Context,
        links: Sequence[str],
        facts: Mapping[str, Fact],
        kind: trace.SpanKind,
    ) -> trace.Span:
        linked = [trace.get_current_span(_propagator.extract({TRACEPARENT: link}, Context())) for link in links]
        return self._tracer.start_span(
            name,
            context=parent,
            kind=kind,
            links=[trace.Link(each.get_span_context()) for each in linked],
            start_time=self.unix_ns(began_s),
            attributes=_attributes(facts),
        )


class _OtelSpan:
    """A recording span of the SDK."""

    def __init__(self, traces: OtelTraces, span: trace.Span) -> None:
        self._traces = traces
        self._span = span
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(span, Context()))
        self.trace = carrier[TRACEPARENT]

    def end(self, at_s: float, *, failure: str = "", **facts: Fact) -> None:
        if not self._span.is_recording():
            return
        self._span.set_attributes(_attributes(facts))
        if failure:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, failure))
        self._span.end(self._traces.unix_ns(at_s))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    return {f"penstock.{name}": value for name, value in facts.items()}
