"""Traces of OpenTelemetry: parents, links, times and the ratio of sampled requests."""

import socket
import threading

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import StatusCode

from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.traces.otel import OtelLimits, OtelTraces
from penstock.runtime.traces.traces import current_trace, record
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.virtual_time import START_MS
from tests.testkit.recorded_traces import RecordedTraces, facts_of, seconds_of, traceparent

JOIN_S = 60.0
REQUESTS = 2_000


def test_stages_are_under_the_stage_around_them_in_one_trace() -> None:
    clock = ManualClock()
    traces = RecordedTraces(clock)
    with traces.root("fetch", clock.now_s, client_id="c"):
        with traces.stage("plan"):
            clock.now_s += 2
        with traces.stage("read"), traces.stage("cache read", ranges=2):
            clock.now_s += 3
    assert traces.parents() == {"plan": "fetch", "read": "fetch", "cache read": "read", "fetch": ""}
    assert len({span.context.trace_id for span in traces.spans}) == 1
    assert [round(seconds_of(span), 6) for span in traces.spans] == [2, 3, 3, 5]
    assert facts_of(traces.named("fetch")) == {"client_id": "c"}
    assert facts_of(traces.named("cache read")) == {"ranges": 2}


def test_a_span_is_in_the_trace_of_its_parent_in_another_process_and_links_to_others() -> None:
    traces = RecordedTraces(ManualClock())
    span = traces.begin("segment", 1_000.0, traceparent(1), [traceparent(1), traceparent(2)])
    assert span is not None
    record(traces, "put", 1_000.5, 1_000.75, span.trace)
    span.end(1_001.0)
    segment, put = traces.named("segment"), traces.named("put")
    assert (segment.context.trace_id, segment.parent.span_id) == (1, 1)
    assert [(link.context.trace_id, link.context.span_id) for link in segment.links] == [(1, 1), (2, 2)]
    assert put.context.trace_id == 1
    assert put.parent.span_id == segment.context.span_id
    assert seconds_of(put) == 0.25


def test_long_facts_are_cut() -> None:
    traces = RecordedTraces(ManualClock())
    with traces.root("fetch", 1_000.0, client_id="x" * 10_000):
        pass
    assert facts_of(traces.named("fetch")) == {"client_id": "x" * OtelLimits().fact_length_max}


def test_a_failed_request_has_the_error_and_the_facts_at_its_end() -> None:
    traces = RecordedTraces(ManualClock())
    with pytest.raises(ValueError, match="no"), traces.root("produce", 1_000.0):
        raise ValueError("no")
    span = traces.begin("segment", 1_000.0, traceparent(1))
    assert span is not None
    span.end(1_001.0, failure="OVERLOADED", size=3)
    assert traces.named("produce").status.status_code is StatusCode.ERROR
    assert traces.named("produce").status.description == "ValueError: no"
    assert traces.named("segment").status.description == "OVERLOADED"
    assert facts_of(traces.named("segment")) == {"size": 3}


class SteppingClock(ManualClock):
    """A clock whose wall clock is set while the process runs."""

    step_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms


@pytest.mark.parametrize("step_ms", [60_000, -60_000])
def test_times_are_those_of_the_wall_clock_also_after_a_step(step_ms: int) -> None:
    clock = SteppingClock(epoch_ms=START_MS)
    traces = RecordedTraces(clock)
    record(traces, "before", clock.now_s, clock.now_s + 0.001, traceparent(1))
    clock.step_ms = step_ms
    record(traces, "after", clock.now_s, clock.now_s + 0.001, traceparent(1))
    assert traces.named("before").start_time == (START_MS + 1_000_000) * 1_000_000
    assert traces.named("after").start_time == (START_MS + 1_000_000 + step_ms) * 1_000_000
    assert seconds_of(traces.named("after")) == 0.001


class RunningClock(ManualClock):
    """A clock on which each look at the monotonic time takes 0.1 ms."""

    def monotonic_s(self) -> float:
        self.now_s += 0.0001
        return self.now_s


def test_times_are_more_exact_than_the_milliseconds_of_the_wall_clock() -> None:
    clocks = [RunningClock(now_s, START_MS) for now_s in (1_000.00005, 2_000.00075)]
    for clock in clocks:
        traces = RecordedTraces(clock)
        now_s = clock.now_s
        record(traces, "stage", now_s, now_s, traceparent(1))
        late_ns = traces.named("stage").start_time - (START_MS * 1_000_000 + round(now_s * 1e9))
        assert -200_000 <= late_ns <= 0


@pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0])
def test_the_ratio_is_the_share_of_sampled_requests(ratio: float) -> None:
    traces = RecordedTraces(ManualClock(), ratio)
    sampled = 0
    for _ in range(REQUESTS):
        with traces.root("produce", 1_000.0), traces.stage("stage"):
            sampled += bool(current_trace())
    assert abs(sampled - ratio * REQUESTS) <= 0.05 * REQUESTS
    assert len(traces.spans) == 2 * sampled


def test_a_span_with_a_sampled_parent_is_sent_with_any_ratio() -> None:
    traces = RecordedTraces(ManualClock(), ratio=0.000001)
    record(traces, "put", 1_000.0, 1_001.0, traceparent(1))
    assert traces.parents() == {"put": ""}


async def test_a_collector_that_does_not_answer_delays_the_end_only_shortly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")
        clock = SystemClock()
        traces = OtelTraces(
            ratio=1.0,
            resource={},
            clock=clock,
            entropy=SystemEntropy(),
            processor=BatchSpanProcessor(exporter),
            limits=OtelLimits(close_s=0.1),
        )
        record(traces, "put", clock.monotonic_s(), clock.monotonic_s(), traceparent(1))
        await traces.close()
        connection, _ = silent.accept()
        # An end without an answer would be tried again in a thread: for seconds, and with numbers of `random`.
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
        connection.close()
    for thread in threading.enumerate():
        if thread.name == "traces":
            thread.join(JOIN_S)
            assert not thread.is_alive()
