"""A sampled Fetch has spans for its plan and its read, and one for each source of bytes."""

from penstock.contracts.messages import SegmentRead
from penstock.runtime.traces.traces import current_trace
from tests.testkit.recorded_traces import RecordedTraces, facts_of
from tests.unit.gateway.gateway_read_world import World, asking, batch_of
from tests.unit.gateway.gateway_zone import Zone, segment


async def test_a_sampled_fetch_has_spans_of_its_stages() -> None:
    world = World(make_traces=RecordedTraces)
    traces = world.traces
    assert isinstance(traces, RecordedTraces)
    topic_id = await world.open()
    segment = await world.produce(topic_id, {0: [batch_of(b"a")]})
    with traces.root("fetch", world.clock.monotonic_s()):
        await world.fetch(asking({0: 0}))
    assert traces.parents() == {"fetch plan": "fetch", "store read": "fetch read", "fetch read": "fetch", "fetch": ""}
    assert facts_of(traces.named("fetch plan")) == {"partitions": 1}
    assert facts_of(traces.named("store read"))["bytes"] == segment.size_bytes
    await world.close()


async def test_a_fetch_that_is_not_sampled_has_no_spans() -> None:
    world = World(make_traces=RecordedTraces)
    assert isinstance(world.traces, RecordedTraces)
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await world.fetch(asking({0: 0}))
    assert current_trace() == ""
    assert world.traces.spans == []
    await world.close()


async def test_a_cacher_gets_the_span_that_waits_for_its_answer() -> None:
    zone = Zone()
    cacher = await zone.add_cacher("c1")
    traces = RecordedTraces(zone.clock)
    reads = zone.make(traces=traces)
    with traces.root("fetch", zone.clock.monotonic_s()):
        await reads.read([SegmentRead(segment(1), 0, 100)])
    await reads.read([SegmentRead(segment(1), 200, 100)])
    span = traces.named("cache read")
    assert facts_of(span) == {"cacher": "c1", "ranges": 1}
    assert traces.parents() == {"cache read": "fetch", "fetch": ""}
    first, second = cacher.requests
    assert first.trace.split("-")[1:3] == [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"]
    assert second.trace == ""
