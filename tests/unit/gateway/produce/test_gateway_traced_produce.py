"""A sampled Produce request has a span, which travels to the flusher; other requests have none."""

import pytest

from penstock.kafkawire.api.api_versions import API as API_VERSIONS, ApiVersionsRequest
from penstock.runtime.traces.traces import NO_TRACES, Traces, current_trace
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.recorded_traces import RecordedTraces, facts_of
from tests.unit.gateway.gateway_fakes import new_client, new_world, with_flushes
from tests.unit.gateway.gateway_wire import ask, batch
from tests.unit.gateway.produce.test_gateway_produce import VERSION, request

PRODUCE = 0


async def traces_at_flusher(traces: Traces, requests: int = 1) -> list[str]:
    """The traces of Produce requests as a flusher gets them."""
    world = new_world(traces=traces)
    world.sequencer.add_topic("t", 1)
    async with with_flushes(world):
        flusher = await world.add_flusher("f1")
        client = new_client("an-app")
        for _ in range(requests):
            await ask(world, PRODUCE, VERSION, request(("t", 0, batch())), client)
        assert current_trace() == ""
        return [produce.trace for produce in flusher.produces]


async def test_the_flusher_gets_the_span_of_each_sampled_request() -> None:
    traces = RecordedTraces(ManualClock())
    sent = await traces_at_flusher(traces, 3)
    spans = [span.context for span in traces.spans]
    ids = [[f"{span.trace_id:032x}", f"{span.span_id:016x}"] for span in spans]
    assert [trace.split("-")[1:3] for trace in sent] == ids
    assert len({span.trace_id for span in spans}) == 3
    assert {span.name for span in traces.spans} == {"produce"}
    assert facts_of(traces.spans[0]) == {"client_id": "an-app"}


@pytest.mark.parametrize("traces", [NO_TRACES, RecordedTraces(ManualClock(), 0.0)], ids=["off", "not sampled"])
async def test_the_flusher_gets_nothing_of_a_request_that_is_not_sampled(traces: Traces) -> None:
    assert await traces_at_flusher(traces) == [""]


async def test_requests_other_than_produce_and_fetch_have_no_spans() -> None:
    traces = RecordedTraces(ManualClock())
    world = new_world(traces=traces)
    assert await ask(world, API_VERSIONS.key, 0, ApiVersionsRequest()) is not None
    assert traces.spans == []
