"""Retries never lose, repeat or misreport a put; metrics count every request by its outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import prometheus_client
import pytest
from hypothesis import given, strategies as st
from structlog.testing import capture_logs

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, Invalid, PenstockError, Unavailable
from penstock.objectstore import AlreadyExists, EtagMismatch, NotDeleted, NotFound, RetryLimits, Throttled
from penstock.objectstore.measured import MeasuredStore
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.retrying import RetryingStore
from penstock.objectstore.store import PART_BYTES_MIN, Listing, PartedPut, Unfinished
from penstock.objectstore.streaming import StreamedPut, streamed_put

Result = TypeVar("Result")
BODY = [b"first ", b"second"]


class FaultyStore:
    """A store in memory whose calls fail by a plan: "before" or "after" their effect, "hang", or with an error."""

    has_local_reads = False

    def __init__(self, *plan: str | PenstockError) -> None:
        self.inner = MemoryStore()
        self.plan = list(plan)
        self.calls: list[str] = []

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        return await self.faulty("put", lambda: self.inner.put(key, body, if_match=if_match))

    async def get(self, key: str) -> bytes:
        return await self.faulty("get", lambda: self.inner.get(key))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return await self.faulty("get_range", lambda: self.inner.get_range(key, position, length))

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        await self.faulty("get_range_into", lambda: self.inner.get_range_into(key, position, buffer))

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Listing:
        return await self.faulty("list", lambda: self.inner.list(prefix, after, limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self.faulty("delete", lambda: self.inner.delete(keys))

    async def begin_parts(self, key: str, part_bytes: int) -> "FaultyParts":
        return FaultyParts(self, await self.faulty("begin", lambda: self.inner.begin_parts(key, part_bytes)))

    async def unfinished(self, prefix: str, limit: int = 1000) -> Sequence[Unfinished]:
        return await self.faulty("unfinished", lambda: self.inner.unfinished(prefix, limit))

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        await self.faulty("abort_unfinished", lambda: self.inner.abort_unfinished(unfinished))

    async def close(self) -> None:
        self.calls.append("close")

    async def faulty(self, verb: str, call: Callable[[], Awaitable[Result]]) -> Result:
        self.calls.append(verb)
        fault = self.plan.pop(0) if self.plan else "ok"
        if isinstance(fault, PenstockError):
            raise fault
        if fault == "before":
            raise Unavailable("lost before its effect")
        done = await call()
        if fault == "after":
            raise Unavailable("lost after its effect")
        if fault == "hang":
            await asyncio.Event().wait()
        return done


class FaultyParts:
    """An upload to a faulty store."""

    def __init__(self, store: FaultyStore, inner: PartedPut) -> None:
        self.store = store
        self.inner = inner

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        await self.store.faulty(f"part {number}", lambda: self.inner.put_part(number, body))

    async def complete(self) -> str:
        return await self.store.faulty("complete", self.inner.complete)

    async def abort(self) -> None:
        await self.store.faulty("abort", self.inner.abort)


class Time:
    """A clock that advances only in `sleep`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


def retrying(inner: FaultyStore, time: Time | None = None, jitter: float = 1.0, **limits: float) -> RetryingStore:
    chosen = time or Time()
    return RetryingStore(
        inner,
        jitter=lambda: jitter,
        limits=RetryLimits(**limits),
        monotonic_s=lambda: chosen.now_s,
        sleep=chosen.sleep,
    )


@pytest.mark.parametrize("plan", [["before"], ["after"], ["before", "after"], ["after", "before"], ["after", "after"]])
async def test_a_put_in_doubt_is_resolved_and_returns_its_real_etag(plan: list[str]) -> None:
    inner = FaultyStore(*plan)
    etag = await retrying(inner).put("a", BODY)
    [listed] = await inner.inner.list("a")
    assert (listed.etag, await inner.inner.get("a")) == (etag, b"first second")


async def test_a_throttled_put_is_retried() -> None:
    inner = FaultyStore(Throttled("slow down"), Throttled("slow down"))
    await retrying(inner).put("a", BODY)
    assert inner.calls == ["put", "put", "put"]


@pytest.mark.parametrize(("failures", "is_logged"), [(3, False), (4, True), (9, True)])
async def test_a_store_that_keeps_failing_is_logged_once_per_call(failures: int, *, is_logged: bool) -> None:
    inner = FaultyStore(*[Throttled("slow down")] * failures)
    with capture_logs() as lines:
        await retrying(inner).put("a", BODY)
    about = {"call": "put of a", "attempts": 4, "error": "slow down"}
    assert lines == [{"event": "store_call_retried", "log_level": "warning", **about}] * is_logged


@pytest.mark.parametrize("theirs", [b"third", b"first secone", b"first secon", b"first second!", b""])
async def test_a_put_in_doubt_that_finds_other_bytes_already_exists(theirs: bytes) -> None:
    inner = FaultyStore("before")
    await inner.inner.put("a", [theirs])
    with pytest.raises(AlreadyExists):
        await retrying(inner).put("a", BODY)
    assert await inner.inner.get("a") == theirs


async def test_a_put_without_doubt_already_exists_even_with_the_same_bytes() -> None:
    inner = FaultyStore()
    await inner.inner.put("a", BODY)
    with pytest.raises(AlreadyExists):
        await retrying(inner).put("a", BODY)
    assert inner.calls == ["put"]


async def test_resolving_a_put_is_itself_retried() -> None:
    inner = FaultyStore("after", "ok", "before", "ok", "ok", "before", "ok", "ok", "ok")
    await retrying(inner).put("a", BODY)
    assert inner.calls == ["put", "put", "list", "put", "list", "get", "put", "list", "get"]


async def test_a_put_in_doubt_whose_object_was_deleted_is_not_reported_as_stored() -> None:
    inner = FaultyStore("before", AlreadyExists("by another"), "ok")
    with pytest.raises(AlreadyExists):
        await retrying(inner).put("a", BODY)
    vanishing = FaultyStore("after", "ok", "ok", NotFound("deleted just now"))
    with pytest.raises(AlreadyExists):
        await retrying(vanishing).put("a", BODY)


async def test_a_put_in_doubt_does_not_take_a_longer_key_for_its_own() -> None:
    inner = FaultyStore("before", AlreadyExists("by another"))
    await inner.inner.put("ab", BODY)
    with pytest.raises(AlreadyExists):
        await retrying(inner).put("a", BODY)


async def test_a_replacement_in_doubt_is_resolved() -> None:
    inner = FaultyStore("after")
    first = await inner.inner.put("a", [b"before"])
    second = await retrying(inner).put("a", BODY, if_match=first)
    assert [(listed.etag, listed.size_bytes) for listed in await inner.inner.list("a")] == [(second, 12)]


async def test_a_replacement_that_lost_is_a_mismatch() -> None:
    inner = FaultyStore("before")
    first = await inner.inner.put("a", [b"before"])
    await inner.inner.put("a", [b"theirs"], if_match=first)
    with pytest.raises(EtagMismatch):
        await retrying(inner).put("a", BODY, if_match=first)


@given(st.lists(st.sampled_from(["ok", "before", "after"]), max_size=40))
def test_a_single_writer_never_gets_a_conflict(plan: list[str]) -> None:
    async def run() -> None:
        inner = FaultyStore(*plan)
        try:
            etag = await retrying(inner, deadline_s=5.0).put("a", BODY)
        except Unavailable:
            return
        [listed] = await inner.inner.list("a")
        assert (listed.etag, await inner.inner.get("a")) == (etag, b"first second")

    asyncio.run(run())


@pytest.mark.parametrize(
    "verb", ["get", "get_range", "get_range_into", "list", "delete", "unfinished", "abort_unfinished"]
)
async def test_every_verb_is_retried(verb: str) -> None:
    inner = FaultyStore("before", "after")
    await inner.inner.put("a", [b"bytes"])
    store = retrying(inner)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "get": lambda: store.get("a"),
        "get_range": lambda: store.get_range("a", 1, 2),
        "get_range_into": lambda: store.get_range_into("a", 1, bytearray(2)),
        "list": lambda: store.list("a"),
        "delete": lambda: store.delete(["a"]),
        "unfinished": lambda: store.unfinished("a"),
        "abort_unfinished": lambda: store.abort_unfinished(Unfinished("a", "name", 0)),
    }
    await calls[verb]()
    assert inner.calls == [verb] * 3


class PartialDeletes(FaultyStore):
    """A store that deletes some keys only after `times` attempts, and locked keys never."""

    def __init__(self, *plan: str | PenstockError, times: dict[str, int], locked: Sequence[str] = ()) -> None:
        super().__init__(*plan)
        self.times = times
        self.locked = locked
        self.asked: list[list[str]] = []

    async def delete(self, keys: Sequence[str]) -> None:
        self.asked.append(list(keys))
        rejected = [key for key in keys if key in self.locked]
        left = [key for key in keys if self.times.get(key, 0) > 0]
        for key in left:
            self.times[key] -= 1
        await super().delete([key for key in keys if key not in left + rejected])
        if left or rejected:
            raise NotDeleted("the store does not delete", left + rejected, rejected)


async def test_only_keys_in_doubt_are_deleted_again() -> None:
    time, inner = Time(), PartialDeletes(times={"b": 2, "d": 1})
    for key in "abcde":
        await inner.inner.put(key, [b"bytes"])
    await retrying(inner, time, first_pause_s=0.5).delete(["a", "b", "c", "d"])
    assert inner.asked == [["a", "b", "c", "d"], ["b", "d"], ["b"]]
    assert time.slept == [0.5, 1.0]
    assert [listed.key for listed in await inner.inner.list("")] == ["e"]


async def test_keys_that_a_store_never_deletes_are_not_retried() -> None:
    inner = PartialDeletes(times={"b": 1}, locked=["a", "c"])
    with pytest.raises(NotDeleted, match="the store does not delete") as raised:
        await retrying(inner).delete(["a", "b", "c", "d"])
    assert (raised.value.keys, raised.value.rejected) == (("a", "c"), ("a", "c"))
    assert inner.asked == [["a", "b", "c", "d"], ["b"]]


async def test_a_delete_names_the_keys_in_doubt_at_its_deadline() -> None:
    inner = PartialDeletes("ok", Throttled("slow down"), times={"b": 99}, locked=["a"])
    message = "2 objects not deleted, the first of them b: the store does not delete"
    with pytest.raises(NotDeleted, match=message) as raised:
        await retrying(inner, deadline_s=5.0, first_pause_s=1.0).delete(["a", "b", "c"])
    assert (raised.value.keys, raised.value.rejected) == (("b", "a"), ("a",))
    away = FaultyStore(*["before"] * 99)
    with pytest.raises(NotDeleted, match="lost before its effect") as raised:
        await retrying(away).delete(["a", "b"])
    assert (raised.value.keys, raised.value.rejected) == (("a", "b"), ())


async def test_a_delete_of_no_objects_needs_no_store() -> None:
    away = FaultyStore(*["before"] * 99)
    await retrying(away).delete([])
    assert away.calls == []


async def test_a_delete_that_can_never_succeed_is_passed_on_at_once() -> None:
    inner = FaultyStore(Invalid("no bucket"))
    with pytest.raises(Invalid, match="no bucket"):
        await retrying(inner).delete(["a"])
    with pytest.raises(Invalid, match="1001 objects"):
        await retrying(inner).delete(["a"] * 1001)
    assert inner.calls == ["delete"]


@pytest.mark.parametrize("error", [Invalid("no"), NotFound("no"), AlreadyExists("no"), Corrupt("no")])
async def test_an_answer_that_will_not_change_is_passed_on_at_once(error: PenstockError) -> None:
    inner = FaultyStore(error)
    with pytest.raises(type(error)):
        await retrying(inner).get("a")
    assert inner.calls == ["get"]


async def test_pauses_double_up_to_their_maximum_and_shrink_with_jitter() -> None:
    whole, half = Time(), Time()
    for time, jitter in ((whole, 1.0), (half, 0.0)):
        inner = FaultyStore(*["before"] * 6)
        await inner.inner.put("a", [b"bytes"])
        await retrying(inner, time, jitter, first_pause_s=0.5, pause_max_s=4.0).get("a")
    assert whole.slept == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert half.slept == [seconds / 2 for seconds in whole.slept]


async def test_the_last_error_is_raised_when_the_deadline_would_pass() -> None:
    time = Time()
    inner = FaultyStore(*["before"] * 100, Throttled("never seen"))
    with pytest.raises(Unavailable, match="lost before"):
        await retrying(inner, time, deadline_s=10.0, first_pause_s=1.0, pause_max_s=2.0).get("a")
    assert time.slept == [1.0, 2.0, 2.0, 2.0, 2.0]
    assert time.now_s < 1010.0


async def test_an_attempt_that_hangs_is_cancelled_and_in_doubt() -> None:
    inner = FaultyStore("hang")
    etag = await retrying(inner, attempt_s=0.01).put("a", BODY)
    assert [listed.etag for listed in await inner.inner.list("a")] == [etag]
    assert inner.calls == ["put", "put", "list", "get"]


async def test_a_store_that_only_hangs_is_unavailable_by_name() -> None:
    time = Time()
    inner = FaultyStore(*["hang"] * 100)
    with pytest.raises(Unavailable, match=r"no answer to a put of a within 0\.01 s"):
        await retrying(inner, time, attempt_s=0.01, deadline_s=1.0, first_pause_s=0.5).put("a", BODY)


async def test_closing_closes_the_wrapped_store() -> None:
    inner = FaultyStore()
    await retrying(inner).close()
    await MeasuredStore(inner, prometheus_client.CollectorRegistry()).close()
    assert inner.calls == ["close", "close"]


async def test_requests_are_counted_by_verb_and_outcome_with_their_bytes() -> None:
    registry = prometheus_client.CollectorRegistry()
    faults = [
        Throttled("slow"),
        NotDeleted("some", ["a"]),
        Unavailable("gone"),
        NotFound("none"),
        AlreadyExists("there"),
        Invalid("no"),
    ]
    inner = FaultyStore(*["ok"] * 8, *faults)
    store = MeasuredStore(inner, registry)
    await store.put("a", BODY)
    await store.get("a")
    await store.get_range("a", 1, 3)
    await store.get_range_into("a", 1, bytearray(2))
    await store.list("")
    await store.delete(["b"])
    await store.unfinished("a")
    await store.abort_unfinished(Unfinished("a", "name", 0))
    for fault in faults:
        with pytest.raises(type(fault)):
            await store.get("a")

    def counted(verb: str, outcome: str) -> float | None:
        return registry.get_sample_value("penstock_store_requests_total", {"verb": verb, "outcome": outcome})

    verbs = ("put", "get", "get_range", "list", "delete", "unfinished", "abort_unfinished")
    assert [counted(verb, "ok") for verb in verbs] == [1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    outcomes = ("throttled", "partial", "unavailable", "not_found", "conflict", "invalid")
    assert [counted("get", outcome) for outcome in outcomes] == [1.0] * 6
    sizes = [
        registry.get_sample_value("penstock_store_bytes_total", {"verb": verb}) for verb in ("put", "get", "get_range")
    ]
    assert sizes == [12.0, 12.0, 5.0]
    assert registry.get_sample_value("penstock_store_request_seconds_count", {"verb": "get"}) == 7.0


async def test_a_request_that_is_cancelled_counts_as_abandoned() -> None:
    registry = prometheus_client.CollectorRegistry()
    store = MeasuredStore(FaultyStore("hang"), registry)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await store.put("a", BODY)
    labels = {"verb": "put", "outcome": "abandoned"}
    assert registry.get_sample_value("penstock_store_requests_total", labels) == 1.0


PARTS = [bytes([number]) * PART_BYTES_MIN for number in range(2)] + [b"end"]


async def put_in_parts(store: RetryingStore) -> str:
    upload = await store.begin_parts("a", PART_BYTES_MIN)
    for number, part in enumerate(PARTS):
        await upload.put_part(number, [part])
    return await upload.complete()


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("at", range(5))
async def test_an_upload_in_parts_survives_a_fault_at_every_step(fault: str, at: int) -> None:
    inner = FaultyStore(*["ok"] * at, fault, fault)
    etag = await put_in_parts(retrying(inner))
    [listed] = await inner.inner.list("a")
    assert (listed.etag, await inner.inner.get("a")) == (etag, b"".join(PARTS))


async def test_only_the_part_that_failed_is_stored_again() -> None:
    inner = FaultyStore("ok", "ok", Throttled("slow down"))
    await put_in_parts(retrying(inner))
    assert inner.calls == ["begin", "part 0", "part 1", "part 1", "part 2", "complete"]


async def test_a_completion_in_doubt_that_finds_an_object_of_another_size_already_exists() -> None:
    inner = FaultyStore(*["ok"] * 4, "before")
    await inner.inner.put("a", [b"theirs"])
    with pytest.raises(AlreadyExists):
        await put_in_parts(retrying(inner))
    assert await inner.inner.get("a") == b"theirs"


async def test_a_completion_without_doubt_already_exists_whatever_the_size() -> None:
    inner = FaultyStore()
    await inner.inner.put("a", PARTS)
    with pytest.raises(AlreadyExists):
        await put_in_parts(retrying(inner))


async def test_an_abort_is_retried() -> None:
    inner = FaultyStore("ok", "before")
    upload = await retrying(inner).begin_parts("a", PART_BYTES_MIN)
    await upload.abort()
    assert inner.calls == ["begin", "abort", "abort"]
    with pytest.raises(NotFound):
        await upload.complete()


async def test_every_request_of_an_upload_is_counted() -> None:
    registry = prometheus_client.CollectorRegistry()
    inner = FaultyStore("ok", "ok", "ok", "before")
    store = RetryingStore(MeasuredStore(inner, registry), jitter=lambda: 0.0)
    await put_in_parts(store)
    assert count_of(registry, "begin_parts", "ok") == 1
    assert count_of(registry, "put_part", "ok") == 3
    assert count_of(registry, "put_part", "unavailable") == 1
    assert count_of(registry, "complete_parts", "ok") == 1
    assert registry.get_sample_value("penstock_store_bytes_total", {"verb": "put_part"}) == sum(map(len, PARTS))
    upload = await store.begin_parts("b", PART_BYTES_MIN)
    await upload.abort()
    assert count_of(registry, "abort_parts", "ok") == 1


def count_of(registry: prometheus_client.CollectorRegistry, verb: str, outcome: str) -> float | None:
    labels = {"verb": verb, "outcome": outcome}
    return registry.get_sample_value("penstock_store_requests_total", labels)


async def test_a_stream_smaller_than_a_part_is_one_put() -> None:
    inner = FaultyStore()
    async with streamed_put(inner, "a", part_bytes=PART_BYTES_MIN) as put:
        for _ in range(3):
            await put.write(b"bytes")
    assert inner.calls == ["put"]
    assert await inner.inner.get("a") == b"bytes" * 3


async def test_a_stream_holds_no_more_than_its_parts_in_flight() -> None:
    """With three parts in flight the fourth part waits, and `write` does not return."""
    inner = FaultyStore("ok", "hang", "hang", "hang")
    put = StreamedPut(inner, "a", part_bytes=PART_BYTES_MIN, parts_in_flight_max=3)
    for _ in range(3):
        await put.write(bytes(PART_BYTES_MIN))
    fourth = asyncio.create_task(put.write(bytes(PART_BYTES_MIN)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not fourth.done()
    assert inner.calls == ["begin", "part 0", "part 1", "part 2"]
    fourth.cancel()
    await asyncio.wait([fourth])
    await put.abort()
    assert inner.calls[-1] == "abort"


@pytest.mark.parametrize("at", range(1, 5))
async def test_a_stream_that_cannot_be_stored_raises_the_cause_and_is_aborted(at: int) -> None:
    inner = FaultyStore(*["ok"] * at, Invalid("no more room"))
    with pytest.raises(Invalid, match="no more room"):
        async with streamed_put(inner, "a", part_bytes=PART_BYTES_MIN) as put:
            await put.write(b"".join(PARTS))
    assert inner.calls[-1] == "abort"
    assert await inner.inner.list("") == []


async def test_a_stream_whose_abort_fails_still_raises_the_first_cause() -> None:
    inner = FaultyStore("ok", Invalid("no more room"), "before")
    with pytest.raises(Invalid, match="no more room"):
        async with streamed_put(inner, "a", part_bytes=PART_BYTES_MIN) as put:
            await put.write(PARTS[0])
    assert inner.calls == ["begin", "part 0", "abort"]
