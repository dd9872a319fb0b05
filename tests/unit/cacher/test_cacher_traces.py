"""The loads of a sampled read are spans under the one of the gateway that waits for it."""

import asyncio

import pytest

from penstock.contracts.ids import ulid_text
from penstock.contracts.messages import SegmentRead
from penstock.runtime.process.logs import configure_logs
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.recorded_traces import RecordedTraces, facts_of, traceparent
from tests.unit.cacher.cacher_rig import FAR, SIZE, Rig


async def test_a_load_is_in_the_trace_of_the_read_and_a_cached_read_has_no_span() -> None:
    traces = RecordedTraces(ManualClock())
    async with Rig(traces=traces) as rig:
        assert (await rig.ask(SegmentRead(FAR, 5, 5), trace=traceparent(3)))[0] == [5]
        load = traces.named("chunk load")
        assert (load.context.trace_id, load.parent.span_id) == (3, 3)
        assert facts_of(load) == {"source": "store", "segment": ulid_text(FAR.segment_id), "bytes": SIZE}
        await rig.ask(SegmentRead(FAR, 5, 5), trace=traceparent(4))
        assert len(traces.spans) == 1


async def test_a_read_with_a_text_that_is_no_trace_does_not_end_the_cacher(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("cacher", "c1", "info", "json")
    traces = RecordedTraces(ManualClock())
    async with Rig(traces=traces) as rig:
        running = asyncio.create_task(rig.server.run())
        rig.store.broken = True
        asking = asyncio.create_task(rig.ask(SegmentRead(FAR, 5, 5), trace="nonsense"))
        await asyncio.wait({asking, running}, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        assert await asking == ([-1], b"")
        rig.store.broken = False
        assert (await rig.ask(SegmentRead(FAR, 5, 5), trace="nonsense"))[0] == [5]
        running.cancel()
    assert "chunk_not_loaded" in capsys.readouterr().err
    assert traces.spans == []


async def test_a_load_for_a_read_that_is_not_sampled_has_no_span() -> None:
    traces = RecordedTraces(ManualClock())
    async with Rig(traces=traces) as rig:
        await rig.ask(SegmentRead(FAR, 5, 5))
    assert traces.spans == []
