"""The spans of a segment: in the trace of its first sampled request, with links to all sampled requests in it."""

from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import ulid_text
from penstock.runtime.traces.traces import TRACE_BYTES_MAX
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.recorded_traces import RecordedTraces, facts_of, seconds_of, traceparent
from tests.unit.flusher.flusher_fakes import HeldStore, LoggingSequencers, Rig, produce, until

STAGES = {"segment fill": "segment", "segment put": "segment", "segment commit": "segment", "segment": ""}


async def test_a_segment_links_to_its_sampled_requests_and_has_a_span_for_each_stage() -> None:
    clock = ManualClock()
    traces = RecordedTraces(clock)
    async with Rig(clock=clock, traces=traces, store=HeldStore(held=True)) as rig:
        message = await rig.send(produce(1), produce(2, trace=traceparent(2)))
        clock.now_s += 0.25
        await rig.send(produce(3, 100, 100, trace=traceparent(3)))
        rig.close_buffer()
        await until(lambda: rig.store.ends)
        clock.now_s += 0.5
        rig.store.ends[0].set_result(None)
        await message.reply()
        assert traces.parents() == STAGES
        segment, put = traces.named("segment"), traces.named("segment put")
        assert {span.context.trace_id for span in traces.spans} == {2}
        assert segment.parent.span_id == 2
        assert [link.context.span_id for link in segment.links] == [2, 3]
        ((segment_id,),) = rig.sequencers.segment_ids()
        known = {"fragments": 3, "batches": 4, "bytes": 400, "segment": ulid_text(segment_id)}
        assert facts_of(segment) == known
        assert facts_of(put) == {"segment": ulid_text(segment_id)}
        assert facts_of(traces.named("segment fill")) == {"reason": "timer"}
        assert [round(seconds_of(span), 6) for span in (traces.named("segment fill"), put, segment)] == [
            0.25,
            0.5,
            0.75,
        ]


async def test_the_sequencers_get_the_span_of_the_commit() -> None:
    traces = RecordedTraces(ManualClock())
    async with Rig(traces=traces) as rig:
        await (await rig.send_and_close(produce(1, trace=traceparent(1)))).reply()
        commit = traces.named("segment commit").context
        assert rig.sequencers.traces[-1] == f"00-{commit.trace_id:032x}-{commit.span_id:016x}-01"
        assert len(rig.sequencers.traces[-1]) < TRACE_BYTES_MAX


async def test_a_segment_without_sampled_requests_has_no_span() -> None:
    traces = RecordedTraces(ManualClock())
    async with Rig(traces=traces) as rig:
        await (await rig.send_and_close(produce(1), produce(2))).reply()
        assert rig.sequencers.traces[-1] == ""
    assert traces.spans == []


async def test_a_flusher_without_traces_ignores_those_of_requests() -> None:
    async with Rig() as rig:
        await (await rig.send_and_close(produce(1, trace=traceparent(1)))).reply()
        assert rig.sequencers.traces[-1] == ""


async def test_a_commit_that_is_sent_again_is_one_span() -> None:
    traces = RecordedTraces(ManualClock())
    sequencers = LoggingSequencers()
    sequencers.replies.put_nowait(Unavailable("no answer"))
    async with Rig(traces=traces, sequencers=sequencers) as rig:
        await (await rig.send_and_close(produce(1, trace=traceparent(1)))).reply()
        assert len(sequencers.requests) == 2
        assert sequencers.traces[-1] == sequencers.traces[-2]
    assert traces.parents() == STAGES


async def test_an_upload_that_fails_marks_the_segment_as_failed() -> None:
    traces = RecordedTraces(ManualClock())
    async with Rig(traces=traces, store=HeldStore(held=True)) as rig:
        message = await rig.send_and_close(produce(1, trace=traceparent(1)))
        await until(lambda: rig.store.ends)
        rig.store.ends[0].set_exception(Unavailable("the store is down"))
        await message.reply()
    assert traces.parents() == {"segment fill": "segment", "segment": ""}
    assert traces.named("segment").status.description == "OVERLOADED"
