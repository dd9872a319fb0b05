"""Retrying never loses, repeats or misreports a put; measuring counts every request by what became of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, Invalid, PenstockError, Unavailable
from penstock.objectstore import AlreadyExists, EtagMismatch, NotFound, Throttled
from penstock.objectstore.measured import MeasuredStore
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.retrying import RetryingStore, RetryPolicy
from penstock.objectstore.store import Listing

Result = TypeVar("Result")
BODY = [b"first ", b"second"]


class FaultyStore:
    """A store in memory that goes wrong as told, call by call: "before" or "after" its effect, "hang", or an error."""

    def __init__(self, *plan: str | PenstockError) -> None:
        self.inner = MemoryStore()
        self.plan = list(plan)
        self.calls: list[str] = []

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        return await self._faulty("put", lambda: self.inner.put(key, body, if_match=if_match))

    async def get(self, key: str) -> bytes:
        return await self._faulty("get", lambda: self.inner.get(key))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        return await self._faulty("get_range", lambda: self.inner.get_range(key, position, length))

    async def list(self, prefix: str, after: str = "", limit: int = 1000) -> Listing:
        return await self._faulty("list", lambda: self.inner.list(prefix, after, limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._faulty("delete", lambda: self.inner.delete(keys))

    async def close(self) -> None:
        self.calls.append("close")

    async def _faulty(self, verb: str, call: Callable[[], Awaitable[Result]]) -> Result:
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


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


def retrying(inner: FaultyStore, time: Time | None = None, jitter: float = 1.0, **policy: float) -> RetryingStore:
    chosen = time or Time()
    return RetryingStore(
        inner,
        jitter=lambda: jitter,
        policy=RetryPolicy(**policy),
        monotonic_s=lambda: chosen.now_s,
        sleep=chosen.sleep,
    )


@pytest.mark.parametrize("plan", [["before"], ["after"], ["before", "after"], ["after", "before"], ["after", "after"]])
async def test_a_put_in_doubt_is_settled_and_its_true_etag_told(plan: list[str]) -> None:
    inner = FaultyStore(*plan)
    etag = await retrying(inner).put("a", BODY)
    [listed] = await inner.inner.list("a")
    assert (listed.etag, await inner.inner.get("a")) == (etag, b"first second")


async def test_a_put_that_is_throttled_is_put_again() -> None:
    inner = FaultyStore(Throttled("slow down"), Throttled("slow down"))
    await retrying(inner).put("a", BODY)
    assert inner.calls == ["put", "put", "put"]


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


async def test_settling_a_put_is_itself_tried_again() -> None:
    inner = FaultyStore("after", "ok", "before", "ok", "ok", "before", "ok", "ok", "ok")
    await retrying(inner).put("a", BODY)
    assert inner.calls == ["put", "put", "list", "put", "list", "get", "put", "list", "get"]


async def test_a_put_in_doubt_whose_object_went_meanwhile_is_not_reported_as_stored() -> None:
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


async def test_a_replacement_in_doubt_is_settled() -> None:
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
def test_a_lone_writer_is_never_told_that_somebody_else_wrote(plan: list[str]) -> None:
    async def run() -> None:
        inner = FaultyStore(*plan)
        try:
            etag = await retrying(inner, deadline_s=5.0).put("a", BODY)
        except Unavailable:
            return
        [listed] = await inner.inner.list("a")
        assert (listed.etag, await inner.inner.get("a")) == (etag, b"first second")

    asyncio.run(run())


@pytest.mark.parametrize("verb", ["get", "get_range", "list", "delete"])
async def test_every_verb_is_tried_again(verb: str) -> None:
    inner = FaultyStore("before", "after")
    await inner.inner.put("a", [b"bytes"])
    store = retrying(inner)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "get": lambda: store.get("a"),
        "get_range": lambda: store.get_range("a", 1, 2),
        "list": lambda: store.list("a"),
        "delete": lambda: store.delete(["a"]),
    }
    await calls[verb]()
    assert inner.calls == [verb] * 3


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


async def test_an_attempt_that_hangs_is_given_up_as_in_doubt() -> None:
    inner = FaultyStore("hang")
    etag = await retrying(inner, attempt_s=0.01).put("a", BODY)
    assert [listed.etag for listed in await inner.inner.list("a")] == [etag]
    assert inner.calls == ["put", "put", "list", "get"]


async def test_a_store_that_only_hangs_is_unavailable_by_name() -> None:
    time = Time()
    inner = FaultyStore(*["hang"] * 100)
    with pytest.raises(Unavailable, match=r"no answer to a put of a within 0\.01 s"):
        await retrying(inner, time, attempt_s=0.01, deadline_s=1.0, first_pause_s=0.5).put("a", BODY)


async def test_closing_closes_the_store_within() -> None:
    inner = FaultyStore()
    await retrying(inner).close()
    await MeasuredStore(inner, prometheus_client.CollectorRegistry()).close()
    assert inner.calls == ["close", "close"]


async def test_requests_are_counted_by_verb_and_outcome_with_their_bytes() -> None:
    registry = prometheus_client.CollectorRegistry()
    faults = [Throttled("slow"), Unavailable("gone"), NotFound("none"), AlreadyExists("there"), Invalid("no")]
    inner = FaultyStore("ok", "ok", "ok", "ok", "ok", *faults)
    store = MeasuredStore(inner, registry)
    await store.put("a", BODY)
    await store.get("a")
    await store.get_range("a", 1, 3)
    await store.list("")
    await store.delete(["b"])
    for fault in faults:
        with pytest.raises(type(fault)):
            await store.get("a")

    def counted(verb: str, outcome: str) -> float | None:
        return registry.get_sample_value("penstock_store_requests_total", {"verb": verb, "outcome": outcome})

    assert [counted(verb, "ok") for verb in ("put", "get", "get_range", "list", "delete")] == [1.0] * 5
    outcomes = ("throttled", "unavailable", "not_found", "conflict", "invalid")
    assert [counted("get", outcome) for outcome in outcomes] == [1.0] * 5
    sizes = [
        registry.get_sample_value("penstock_store_bytes_total", {"verb": verb}) for verb in ("put", "get", "get_range")
    ]
    assert sizes == [12.0, 12.0, 3.0]
    assert registry.get_sample_value("penstock_store_request_seconds_count", {"verb": "get"}) == 6.0


async def test_a_request_that_is_cancelled_counts_as_abandoned() -> None:
    registry = prometheus_client.CollectorRegistry()
    store = MeasuredStore(FaultyStore("hang"), registry)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await store.put("a", BODY)
    labels = {"verb": "put", "outcome": "abandoned"}
    assert registry.get_sample_value("penstock_store_requests_total", labels) == 1.0
