"""The reason why an object stays or is deleted: requested over the bus, by the rules that also delete."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.contracts import codec, subjects
from penstock.contracts.commands import LeaseJob, ReleaseJob
from penstock.contracts.errors import Undelivered
from penstock.contracts.messages import ExplainReply, ExplainRequest
from penstock.segment.keys import cleanup_key
from penstock_janitor.coordination.guard import marker_key
from penstock_janitor.rules.classification import ORPHAN_AGE_MIN_MS
from penstock_janitor.rules.journal import Identity
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.janitor.janitor_world import CLUSTER, GRACE_S, MINUTE_MS, World, world


async def ask(built: World, key: str) -> ExplainReply:
    bus = built.client
    answer = await bus.request(subjects.explain(CLUSTER), codec.encode(ExplainRequest(key)), 5.0)
    return codec.decode(answer, ExplainReply)


async def started(built: World) -> None:
    built.start(reap_interval_ms=1_000, dry_run=True)
    await built.go_on(0.1)


@in_virtual_time
async def test_a_live_segment_is_explained_with_its_live_bytes() -> None:
    async with world() as built:
        built.create_topic("t")
        key = await built.flush("t")
        await started(built)
        reply = await ask(built, key)
        assert (reply.state, reply.reason) == ("live", "1 extents point to 100 bytes of it")
        assert reply.facts["key"] == key
        assert reply.facts["bytes"] == "100"
        assert reply.failure is None


@in_virtual_time
async def test_a_dead_segment_is_waiting_and_then_deletable() -> None:
    async with world() as built:
        built.create_topic("t")
        key = await built.flush("t")
        built.delete_topic("t")
        await started(built)
        reply = await ask(built, key)
        assert reply.state == "waiting"
        assert "readers may use it for 10 min" in reply.reason
        await built.go_on(GRACE_S + 10)
        reply = await ask(built, key)
        assert reply.state == "condemned"
        assert int(reply.facts["condemned_sequence"]) > 0


@in_virtual_time
async def test_a_leased_dead_segment_is_waiting() -> None:
    async with world() as built:
        built.create_topic("t")
        key = await built.flush("t")
        built.delete_topic("t")
        await started(built)
        await built.go_on(GRACE_S + 10)
        (segment_id,) = (built.state.segments.id(slot) for slot in built.state.segments.by_number)
        built.apply(LeaseJob(0, "merge", "compactor-1", [segment_id], MINUTE_MS))
        reply = await ask(built, key)
        assert (reply.state, reply.facts["claimed"]) == ("waiting", "yes")
        assert "a compactor or a janitor has a job lease on it" in reply.reason
        built.apply(ReleaseJob(0, "merge", "compactor-1"))
        reply = await ask(built, key)
        assert (reply.state, reply.facts["claimed"]) == ("condemned", "no")


@in_virtual_time
async def test_an_unknown_segment_is_young_and_then_an_orphan() -> None:
    async with world() as built:
        key = await built.put(built.new_id(built.clock.now_ms()))
        await started(built)
        assert (await ask(built, key)).state == "young"
        await built.go_on(ORPHAN_AGE_MIN_MS / 1000)
        reply = await ask(built, key)
        assert (reply.state, reply.facts["age"]) == ("orphan", "60 min")


@in_virtual_time
async def test_objects_of_the_journal_are_kept_and_strange_ones_unknown() -> None:
    async with world() as built:
        strange, snapshot = f"{CLUSTER}/strange", f"{CLUSTER}/snapshots/{7:020}"
        for key in (strange, snapshot):
            await built.store.objects.put(key, [b"?"])
        await started(built)
        assert (await ask(built, marker_key(CLUSTER))).state == "kept"
        assert (await ask(built, snapshot)).state == "kept"
        assert (await ask(built, strange)).state == "unknown"
        assert (await ask(built, "another/segments/003/x")).state == "unknown"


@in_virtual_time
async def test_an_object_of_a_cleanup_is_young_and_then_an_orphan() -> None:
    async with world() as built:
        left = cleanup_key("", CLUSTER, "8f")
        await built.store.objects.put(left, [b"?"])
        await started(built)
        assert (await ask(built, left)).state == "young"
        await built.go_on(ORPHAN_AGE_MIN_MS / 1000)
        assert (await ask(built, left)).state == "orphan"


@in_virtual_time
async def test_a_missing_object_is_absent() -> None:
    async with world() as built:
        built.create_topic("t")
        key = await built.flush("t")
        await built.store.objects.delete([key])
        await started(built)
        reply = await ask(built, key)
        assert reply.state == "absent"
        assert "but the journal needs it" in reply.reason
        assert (await ask(built, f"{CLUSTER}/snapshots/{8:020}")).state == "absent"


@in_virtual_time
async def test_the_key_may_begin_with_the_prefix_of_the_store() -> None:
    async with world() as built:
        built.create_topic("t")
        key = await built.flush("t")
        await started(built)
        assert (await ask(built, f"some/prefix/{key}")).facts["key"] == key


@in_virtual_time
async def test_in_a_wrong_bucket_a_request_fails() -> None:
    async with world() as built:
        await built.write_marker(Identity("another", ""))
        await started(built)
        reply = await ask(built, f"{CLUSTER}/strange")
        assert reply.failure is not None
        assert "this is not the store of cluster test" in reply.failure


@pytest.mark.parametrize("request_", [codec.encode(ExplainRequest("//")), codec.encode(ExplainRequest("")), b"?"])
def test_an_invalid_request_gets_an_answer_and_does_no_harm(request_: bytes) -> None:
    @in_virtual_time
    async def run() -> None:
        async with world() as built:
            await started(built)
            answer = await built.client.request(subjects.explain(CLUSTER), request_, 5.0)
            assert codec.decode(answer, ExplainReply).failure
            assert (await ask(built, marker_key(CLUSTER))).state == "kept"

    run()


@in_virtual_time
async def test_too_many_requests_at_once_are_rejected() -> None:
    async with world() as built:
        await started(built)
        built.is_down = True
        asking = [asyncio.create_task(ask(built, marker_key(CLUSTER))) for _ in range(20)]
        await built.go_on(1)
        replies: Sequence[ExplainReply] = [task.result() for task in asking if task.done()]
        assert len(replies) == 4
        assert all(reply.failure == "16 such requests are already in work" for reply in replies)
        await asyncio.gather(*asking, return_exceptions=True)


@in_virtual_time
async def test_a_drained_janitor_takes_no_more_requests() -> None:
    async with world() as built:
        await started(built)
        await built.stop("janitor-1")
        with pytest.raises(Undelivered):
            await ask(built, marker_key(CLUSTER))
