"""The contract of traces, checked with those that are off and with those of OpenTelemetry, sampled or not."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.runtime.traces.traces import NO_TRACES, TRACE_BYTES_MAX, Traces, current_trace, record, within
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.recorded_traces import RecordedTraces, traceparent

MakeTraces = Callable[[], Traces]
WORLDS = {
    "off": lambda: NO_TRACES,
    "all": lambda: RecordedTraces(ManualClock(), 1.0),
    "none sampled": lambda: RecordedTraces(ManualClock(), 0.0),
}
MALFORMED = ["", "x", "00-", traceparent(0), f"00-{'z' * 32}-{'1' * 16}-01", "x" * 10_000]


@pytest.fixture(params=WORLDS)
def traces(request: pytest.FixtureRequest) -> Traces:
    make: MakeTraces = WORLDS[request.param]
    return make()


def test_a_task_works_for_no_request_at_first() -> None:
    assert current_trace() == ""


def test_the_trace_of_a_request_ends_with_its_block(traces: Traces) -> None:
    with traces.root("request", 1.0):
        with traces.stage("stage"):
            pass
        after_stage = current_trace()
        with traces.stage("other"):
            pass
        assert current_trace() == after_stage
    assert current_trace() == ""


def test_an_error_passes_through_and_ends_the_trace(traces: Traces) -> None:
    with pytest.raises(ZeroDivisionError), traces.root("request", 1.0), traces.stage("stage"):
        raise ZeroDivisionError
    assert current_trace() == ""


def test_a_trace_is_a_short_text_or_empty(traces: Traces) -> None:
    with traces.root("request", 1.0):
        assert len(current_trace()) in (0, len(traceparent(1)))
        assert len(current_trace()) < TRACE_BYTES_MAX


async def test_tasks_that_a_block_creates_work_for_its_request(traces: Traces) -> None:
    async def trace() -> str:
        return current_trace()

    with traces.root("request", 1.0):
        assert await asyncio.create_task(trace()) == current_trace()


def test_a_stage_without_a_request_is_no_trace(traces: Traces) -> None:
    with traces.stage("stage"):
        assert current_trace() == ""


def test_a_request_that_is_not_sampled_does_not_belong_to_the_trace_around_it() -> None:
    traces = WORLDS["none sampled"]()
    with within(traceparent(7)), traces.root("request", 1.0):
        assert current_trace() == ""


@pytest.mark.parametrize("parent", MALFORMED, ids=range(len(MALFORMED)))
def test_a_span_needs_a_sampled_parent(traces: Traces, parent: str) -> None:
    assert traces.begin("span", 1.0, parent) is None
    record(traces, "stage", 1.0, 2.0, parent)
    with within(parent), traces.stage("stage"):
        assert current_trace() == parent


@pytest.mark.parametrize("link", MALFORMED, ids=range(len(MALFORMED)))
def test_links_that_cannot_be_read_do_no_harm(traces: Traces, link: str) -> None:
    span = traces.begin("span", 1.0, traceparent(1), [link])
    assert (span is not None) == traces.is_on
    if span is not None:
        span.end(2.0)


def test_a_span_may_end_twice(traces: Traces) -> None:
    span = traces.begin("span", 1.0, traceparent(1), size=3)
    if span is not None:
        span.end(2.0, failure="late", size=4)
        span.end(3.0)


async def test_after_the_end_work_goes_on_without_an_error(traces: Traces) -> None:
    await traces.close()
    await traces.close()
    record(traces, "stage", 1.0, 2.0, traceparent(1))
    with traces.root("request", 1.0), traces.stage("stage"):
        assert current_trace() == "" or traces.is_on
