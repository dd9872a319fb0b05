"""Three landing stores as one: two must answer, in virtual time, with one that hangs, fails, is full, late or gone."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

import prometheus_client
import pytest

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.contracts.ids import new_landed_id
from penstock.objectstore import (
    AlreadyExists,
    Full,
    LandingFor,
    NotDeleted,
    NotFound,
    ObjectStore,
    QuorumLimits,
    landing_for,
    open_store,
)
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.quorum import Member, QuorumMetrics, QuorumStore
from penstock.objectstore.retrying import RetryingStore
from penstock.objectstore.store import LIST_LIMIT_MAX, PART_BYTES_MIN, Listing
from penstock.segment.keys import segment_key, snapshot_key
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time

PUT_S, READ_S = 0.01, 0.005
HANG_S = 3_600.0
LIMITS = QuorumLimits()


class Faulty(MemoryStore):
    """A store that is late, and that fails before or after the effect."""

    def __init__(self) -> None:
        super().__init__()
        self.put_s, self.read_s = PUT_S, READ_S
        self.error: PenstockError | None = None
        self.lost_answers = 0  # of puts, which are done
        self.calls = 0
        self.is_closed = False

    async def _wait(self, wait_s: float) -> None:
        self.calls += 1
        await asyncio.sleep(wait_s)
        if self.error is not None:
            raise self.error

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        await self._wait(self.put_s)
        etag = await super().put(key, body, if_match=if_match)
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unavailable("the answer is lost")
        return etag

    async def get(self, key: str) -> bytes:
        await self._wait(self.read_s)
        return await super().get(key)

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        await self._wait(self.read_s)
        return await super().list(prefix, after, limit)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._wait(self.put_s)
        await super().delete(keys)

    async def close(self) -> None:
        self.is_closed = True

    async def holds(self, key: str) -> bool:
        """Whether it has the object, without a wait."""
        return bool(await MemoryStore.list(self, key))

    def hang(self) -> None:
        self.put_s = self.read_s = HANG_S

    def recover(self) -> None:
        self.put_s, self.read_s, self.error = PUT_S, READ_S, None


class Rig:
    """A quorum of three faulty stores."""

    def __init__(self, limits: QuorumLimits = LIMITS) -> None:
        self.stores = [Faulty(), Faulty(), Faulty()]
        self.registry = prometheus_client.CollectorRegistry()
        self.degraded: dict[str, str] = {}
        self.clock = VirtualClock()
        self.absent: dict[int, None] = {}  # the stores that cannot be opened
        metrics = QuorumMetrics(self.registry)
        self.members = [
            Member(
                f"s{number}",
                partial(self._open, number),
                monotonic_s=self.clock.monotonic_s,
                limits=limits,
                metrics=metrics,
                set_degraded=self.degraded.__setitem__,
            )
            for number in range(3)
        ]
        self.quorum = QuorumStore(self.members, limits)

    async def _open(self, number: int) -> ObjectStore:
        if number in self.absent:
            raise Unavailable("nothing listens there")
        return self.stores[number]

    async def timed_put(self, key: str, data: bytes = b"records") -> float:
        """The time of a put."""
        began_s = self.clock.monotonic_s()
        await self.quorum.put(key, [data])
        return self.clock.monotonic_s() - began_s

    async def holders(self, key: str) -> list[int]:
        return [number for number, store in enumerate(self.stores) if await store.holds(key)]

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"penstock_landing_store_{name}", labels) or 0.0


Break = Callable[[Faulty], None]


def hang(store: Faulty) -> None:
    store.hang()


def failing(error: PenstockError) -> Break:
    def fail(store: Faulty) -> None:
        store.error = error

    return fail


FAULTS: dict[str, Break] = {
    "hangs": hang,
    "fails": failing(Unavailable("503")),
    "is full": failing(Full("no room")),
    "denies": failing(Invalid("access denied")),
}


@in_virtual_time
async def test_a_put_is_acknowledged_when_two_stores_have_the_object_and_the_third_gets_it_later() -> None:
    rig = Rig()
    rig.stores[1].put_s = 0.5
    assert await rig.timed_put("a") == pytest.approx(PUT_S)
    assert await rig.holders("a") == [0, 2]
    assert rig.metric("behind_bytes", store="s1") == 7
    await asyncio.sleep(0.6)
    assert await rig.holders("a") == [0, 1, 2]
    assert rig.metric("behind_bytes", store="s1") == 0
    assert all(rig.metric("puts_total", store=f"s{each}", outcome="stored") == 1 for each in range(3))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(3))
def test_no_verb_waits_for_one_store_that(fault: str, number: int) -> None:
    @in_virtual_time
    async def run() -> None:
        rig = Rig()
        await rig.quorum.put("old", [b"old"])
        await asyncio.sleep(1.0)
        FAULTS[fault](rig.stores[number])
        for index in range(100):
            assert await rig.timed_put(f"a{index:02}") < 2 * PUT_S
            began_s = rig.clock.monotonic_s()
            assert await rig.quorum.get(f"a{index:02}") == b"records"
            assert rig.clock.monotonic_s() - began_s < LIMITS.read_hedge_s + 3 * READ_S
        assert len(await rig.quorum.list("a")) == 100
        with pytest.raises(NotFound):
            await rig.quorum.get("absent")
        await rig.quorum.close()

    run()


@in_virtual_time
async def test_a_store_that_hangs_costs_readers_one_pause_in_a_while() -> None:
    rig = Rig()
    await rig.quorum.put("a", [b"records"])
    rig.stores[0].hang()
    slow = 0
    for _ in range(1_000):
        began_s = rig.clock.monotonic_s()
        await rig.quorum.get("a")
        slow += rig.clock.monotonic_s() - began_s > LIMITS.read_hedge_s
        await asyncio.sleep(0.05)
    assert slow <= 3, "a slow store is last in the order, and is tried again later"
    rig.stores[0].recover()
    await asyncio.sleep(200.0)
    calls = rig.stores[0].calls
    for _ in range(9):
        await rig.quorum.get("a")
    assert rig.stores[0].calls > calls, "it is used again"


@in_virtual_time
async def test_puts_to_a_store_that_hangs_are_limited_in_number_bytes_and_time() -> None:
    rig = Rig(QuorumLimits(behind_puts_max=5, behind_bytes_max=1_000))
    rig.stores[2].hang()
    for index in range(8):
        await rig.quorum.put(f"a{index}", [b"x" * 10])
    assert (rig.stores[2].calls, rig.metric("behind_bytes", store="s2")) == (5, 50)
    assert rig.metric("puts_total", store="s2", outcome="skipped") == 3
    await asyncio.sleep(LIMITS.call_s_max)
    assert rig.metric("behind_bytes", store="s2") == 0
    assert rig.metric("puts_total", store="s2", outcome="failed") == 5
    await rig.quorum.put("b0", [b"x" * 900])
    await rig.quorum.put("b1", [b"x" * 200])
    assert rig.stores[2].calls == 6


@in_virtual_time
async def test_a_store_that_fails_for_some_seconds_is_degraded_health_until_it_answers() -> None:
    rig = Rig()
    rig.stores[1].error = Unavailable("503")
    await rig.quorum.put("a", [b""])
    assert not rig.degraded and rig.metric("up", store="s1") == 0
    await asyncio.sleep(6.0)
    await rig.quorum.put("b", [b""])
    assert "503" in rig.degraded["landing stores: s1"]
    rig.stores[1].recover()
    await rig.quorum.put("c", [b""])
    await asyncio.sleep(0.1)
    assert rig.degraded["landing stores: s1"] == ""
    assert rig.metric("up", store="s1") == 1


@in_virtual_time
async def test_without_two_stores_nothing_is_acknowledged() -> None:
    for faults in (("fails", "fails"), ("fails", "denies"), ("is full", "fails"), ("fails", "hangs")):
        rig = Rig()
        for number, fault in enumerate(faults):
            FAULTS[fault](rig.stores[number])
        with pytest.raises(Unavailable):
            await rig.quorum.put("a", [b"records"])
    rig = Rig()
    for store in rig.stores[:2]:
        store.error = Full("no room")
    with pytest.raises(Full):
        await rig.quorum.put("a", [b"records"])
    rig.stores[2].error = Unavailable("503")
    with pytest.raises(Full):
        await rig.quorum.put("b", [b"records"])
    for verb in (rig.quorum.list(""), rig.quorum.get("a")):
        rig.stores[0].error = rig.stores[1].error = Unavailable("503")
        with pytest.raises(Unavailable):
            await verb


@in_virtual_time
async def test_a_retry_with_the_same_bytes_is_success_whichever_answers_were_lost() -> None:
    for lost in ([1, 1, 0], [1, 1, 1], [2, 2, 1], [0, 1, 1]):
        rig = Rig()
        for store, answers in zip(rig.stores, lost, strict=True):
            store.lost_answers = answers
        await RetryingStore(rig.quorum, jitter=lambda: 0.5, monotonic_s=rig.clock.monotonic_s).put(
            "a", [b"re", b"cords"]
        )
        await asyncio.sleep(1.0)
        assert await rig.holders("a") == [0, 1, 2]


@in_virtual_time
async def test_a_writer_that_ends_between_two_answers_leaves_an_object_that_lists_show_and_deletes_remove() -> None:
    rig = Rig()
    rig.stores[1].put_s = rig.stores[2].put_s = 1.0
    put = asyncio.create_task(rig.quorum.put("a", [b"records"]))
    await asyncio.sleep(0.5)
    put.cancel()
    await asyncio.wait([put])
    assert await rig.holders("a") == [0]
    assert [each.key for each in await rig.quorum.list("")] == ["a"]
    await rig.quorum.delete(["a"])
    assert await rig.holders("a") == [] and await rig.quorum.list("") == []


@in_virtual_time
async def test_another_object_in_one_store_does_not_hinder_the_two_others() -> None:
    rig = Rig()
    await MemoryStore.put(rig.stores[0], "a", [b"another"])
    await rig.quorum.put("a", [b"records"])
    await asyncio.sleep(0.1)
    assert rig.metric("puts_total", store="s0", outcome="conflict") == 1
    await MemoryStore.put(rig.stores[0], "b", [b"another"])
    await MemoryStore.put(rig.stores[1], "b", [b"another"])
    rig.stores[2].error = Unavailable("503")
    with pytest.raises(AlreadyExists):
        await rig.quorum.put("b", [b"records"])


@in_virtual_time
async def test_of_racing_puts_with_different_bytes_at_most_one_succeeds() -> None:
    for order in ([0, 1, 2], [1, 2, 0], [2, 1, 0]):
        rig = Rig()
        for place, number in enumerate(order):
            rig.stores[number].put_s = PUT_S * (place + 1)
        raced = await asyncio.gather(
            *(rig.quorum.put("a", [b"%d" % racer]) for racer in range(4)), return_exceptions=True
        )
        assert sum(isinstance(each, str) for each in raced) <= 1
        assert all(isinstance(each, str | AlreadyExists | Unavailable) for each in raced)


@in_virtual_time
async def test_a_read_finds_an_object_that_only_two_stores_have() -> None:
    rig = Rig()
    rig.stores[0].error = Unavailable("503")
    await rig.quorum.put("a", [b"records"])
    rig.stores[0].recover()
    rig.stores[1].error = Unavailable("503")
    assert await rig.quorum.get_range("a", 1, 3) == b"eco"
    buffer = bytearray(3)
    await rig.quorum.get_range_into("a", 0, buffer)
    assert (bytes(buffer), await rig.quorum.get_up_to("a", 5, 99)) == (b"rec", b"ds")
    assert [each.key for each in await rig.quorum.list("")] == ["a"]


@in_virtual_time
async def test_an_object_that_one_store_lacks_is_in_doubt_while_the_others_do_not_answer() -> None:
    rig = Rig()
    rig.stores[0].error = rig.stores[1].error = Unavailable("503")
    with pytest.raises(Unavailable):
        await rig.quorum.get("a")
    rig.stores[1].error = None
    with pytest.raises(NotFound):
        await rig.quorum.get("a")


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_a_store_that_denies_reads_does_not_prove_that_an_object_is_absent(order: Sequence[int]) -> None:
    @in_virtual_time
    async def run() -> None:
        rig = Rig()
        denies, fails = (rig.stores[number] for number in order[1:])
        denies.error, fails.error = Invalid("access denied"), Unavailable("503")
        with pytest.raises(Unavailable, match="503"):
            await rig.quorum.get("a")
        fails.error = Invalid("access denied")
        with pytest.raises(Invalid, match="access denied") as raised:
            await rig.quorum.get("a")
        assert not isinstance(raised.value, NotFound)
        denies.error = None
        with pytest.raises(NotFound):
            await rig.quorum.get("a")

    run()


@in_virtual_time
async def test_a_listing_joins_pages_of_all_stores() -> None:
    rig = Rig()
    keys = [f"k{number:02}" for number in range(30)]
    for place, key in enumerate(keys):
        for number in range(3):
            if number != place % 3:
                await MemoryStore.put(rig.stores[number], key, [b"x" * (place + 1)])
    found: list[str] = []
    while page := await rig.quorum.list("k", found[-1] if found else "", 7):
        assert len(page) <= 7
        found += [each.key for each in page]
    assert found == keys


@pytest.mark.parametrize("fault", ["hangs", "fails", "denies"])
def test_a_delete_without_one_store_is_in_doubt_until_the_store_is_gone_for_a_minute(fault: str) -> None:
    @in_virtual_time
    async def run() -> None:
        rig = Rig()
        await rig.quorum.put("a", [b"records"])
        await asyncio.sleep(1.0)
        FAULTS[fault](rig.stores[1])
        with pytest.raises(NotDeleted) as failed:
            await rig.quorum.delete(["a", "absent"])
        assert failed.value.keys == ("a", "absent")
        assert await rig.holders("a") == [1]
        await asyncio.sleep(LIMITS.gone_after_s)
        await rig.quorum.delete(["a"])
        await rig.quorum.delete(["a"])
        rig.stores[1].recover()
        assert [each.key for each in await rig.quorum.list("")] == ["a"], "the orphan sweep sees it"
        await rig.quorum.delete(["a"])
        assert await rig.holders("a") == []

    run()


@in_virtual_time
async def test_keys_that_one_store_keeps_are_the_only_ones_in_doubt() -> None:
    rig = Rig()
    rig.stores[2].error = NotDeleted("denied", ["b"], ["b"])
    with pytest.raises(NotDeleted) as failed:
        await rig.quorum.delete(["a", "b", "c"])
    assert (failed.value.keys, failed.value.rejected) == (("b",), ("b",))


@in_virtual_time
async def test_a_store_that_is_absent_at_the_start_is_opened_later() -> None:
    rig = Rig()
    rig.absent[0] = None
    await rig.quorum.open()
    await rig.quorum.put("a", [b"records"])
    rig.absent.clear()
    await asyncio.sleep(LIMITS.reopen_s)
    await rig.quorum.put("b", [b"records"])
    await asyncio.sleep(0.1)
    assert (await rig.holders("a"), await rig.holders("b")) == ([1, 2], [0, 1, 2])
    rig = Rig()
    rig.absent |= {0: None, 2: None}
    with pytest.raises(Unavailable, match="nothing listens"):
        await rig.quorum.open()


@in_virtual_time
async def test_a_close_ends_puts_without_a_caller_and_closes_all_stores() -> None:
    rig = Rig()
    rig.stores[0].hang()
    await rig.quorum.put("a", [b"records"])
    began_s = rig.clock.monotonic_s()
    await rig.quorum.close()
    assert rig.clock.monotonic_s() - began_s <= LIMITS.end_s_max
    assert all(store.is_closed for store in rig.stores)


@in_virtual_time
async def test_objects_are_not_replaced_and_have_no_parts() -> None:
    rig = Rig()
    with pytest.raises(Invalid, match="never replaced"):
        await rig.quorum.put("a", [b""], if_match="1")
    with pytest.raises(Full):
        await rig.quorum.begin_parts("a", PART_BYTES_MIN)
    assert await rig.quorum.unfinished("") == ()


def address_of(folder: Path, names: Sequence[str], *options: str) -> str:
    landing = [f"landing={quote(f'file://{folder}/{name}?local_reads=off')}" for name in names]
    return f"file://{folder}/final?{'&'.join((*landing, *options))}"


async def test_three_landing_options_are_a_quorum_for_landing_keys_only(tmp_path: Path) -> None:
    store = await open_store(address_of(tmp_path, "abc"), registry=prometheus_client.CollectorRegistry())
    landed = segment_key("", "c", 0, new_landed_id(1_700_000_000_000, bytes(10)))
    for key in (landed, snapshot_key("", "c", 1)):
        await store.put(key, [b"bytes"])
        assert await store.get(key) == b"bytes"
    await store.close()
    assert {name: (tmp_path / name / landed).exists() for name in ("a", "b", "c", "final")} == {
        "a": True,
        "b": True,
        "c": True,
        "final": False,
    }


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("ab", (), "2 landing stores: give the option landing once, or 3 times"),
        ("aab", (), "must be different"),
        ("", ("landing_for=all",), "needs the option landing"),
        ("a", ("landing_for=some",), "landing_for is express, all, nothing"),
        ("a", ("landing=jetstream:", "landing=x", "landing_for=all"), "2 landing|3 landing|other than jetstream"),
    ],
)
async def test_landing_options_that_do_not_fit_are_invalid(
    tmp_path: Path, names: str, options: Sequence[str], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        await open_store(address_of(tmp_path, names, *options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", LandingFor.NOTHING),
        ("landing=jetstream:", LandingFor.EXPRESS),
        ("landing=s3://b&landing_for=all", LandingFor.ALL),
        ("landing=s3://b&landing_for=nothing", LandingFor.NOTHING),
    ],
)
def test_an_address_shows_which_new_segments_land(options: str, expected: LandingFor) -> None:
    assert landing_for(f"s3://bucket/?{options}") is expected


async def test_all_segments_need_a_store_that_is_not_on_the_disks_of_the_journal() -> None:
    with pytest.raises(Invalid, match="on the disks of the journal"):
        landing_for("s3://bucket/?landing=jetstream:&landing_for=all")


@in_virtual_time
async def test_a_listing_needs_two_stores_because_one_may_lack_objects() -> None:
    rig = Rig()
    rig.stores[0].error = Unavailable("503")
    await rig.quorum.put("a", [b"records"])
    rig.stores[0].recover()
    rig.stores[1].read_s = 1.0
    rig.stores[2].hang()
    assert [each.key for each in await rig.quorum.list("")] == ["a"]
