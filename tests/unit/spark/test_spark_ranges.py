"""Ranges of objects, streamed to synchronous code."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.errors import Invalid, Unavailable
from penstock.objectstore import AlreadyExists, NotFound, ObjectStore
from penstock.spark.blocks import BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, GAP_BYTES_MAX, Range, plan_blocks
from penstock.spark.ranges import StoreRanges

KIB = 1024
MIB = 1024 * KIB


class CountedStore:
    """A store in memory that records the requested ranges."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.asked: list[Range] = []

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.asked.append(Range(key, position, length))
        if key == "down":
            raise Unavailable("the store is down")
        if key not in self.objects:
            raise NotFound(f"no object: {key}")
        return self.objects[key][position : position + length]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def opened(store: CountedStore, **settings: Any) -> StoreRanges:
    async def opening(_url: str) -> ObjectStore:
        return store  # type: ignore[return-value]

    return StoreRanges("memory://ranges", opening=opening, **settings)


def pattern(size: int) -> bytes:
    return bytes(each * 7 % 251 for each in range(size))


def joined(ranges: StoreRanges, wanted: Sequence[Range]) -> list[bytes]:
    found = [bytearray() for _ in wanted]
    for fragment in ranges.stream(wanted):
        found[fragment.number] += fragment.data
    return [bytes(data) for data in found]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3_000_000), st.integers(1, 1_500_000)), max_size=12),
    st.integers(1, 3 * MIB),
)
def test_every_range_is_cut_completely_from_its_blocks(wanted: list[Range], window_bytes: int) -> None:
    ranges = [Range(*each) for each in wanted]
    cuts = plan_blocks(ranges, window_bytes)
    found: dict[int, list[tuple[int, int]]] = {}
    for cut in cuts:
        block = cut.block
        assert block.key == ranges[cut.number].key
        assert block.position <= cut.position <= cut.position + cut.length <= block.end
        assert block.length <= BLOCK_BYTES_MAX
        found.setdefault(cut.number, []).append((cut.position, cut.length))
    for index, (_, position, length) in enumerate(ranges):
        places = found[index]
        assert places[0][0] == position and sum(cut for _, cut in places) == length
        assert all(first + cut == later for (first, cut), (later, _) in itertools.pairwise(places))
    assert sorted(found) == list(range(len(ranges)))
    assert [cut.number for cut in cuts if cut.is_last] == list(range(len(ranges)))


def test_neighbouring_ranges_are_one_request() -> None:
    store = CountedStore({"a": pattern(1000)})
    with opened(store) as ranges:
        assert joined(ranges, [Range("a", 0, 300), Range("a", 300, 700)]) == [pattern(1000)[:300], pattern(1000)[300:]]
    assert store.asked == [Range("a", 0, 1000)]


def test_each_object_is_read_once_although_ranges_of_several_objects_alternate() -> None:
    data = pattern(600_000)
    store = CountedStore(dict.fromkeys("abcd", data))
    wanted = [Range(key, position, 1000) for position in range(0, 600_000, 1000) for key in "abcd"]
    with opened(store, window_bytes=2 * MIB) as ranges:
        assert joined(ranges, wanted) == [data[each.position :][:1000] for each in wanted]
    assert len(store.asked) == 4 * -(-600_000 // BLOCK_BYTES_MIN)
    assert sum(each.length for each in store.asked) == 4 * 600_000


def test_a_small_gap_is_read_through_and_a_large_one_is_not() -> None:
    far = 1000 + GAP_BYTES_MAX + 1
    near_cuts = plan_blocks([Range("a", 0, 1000), Range("a", 1000 + GAP_BYTES_MAX, 10)])
    far_cuts = plan_blocks([Range("a", 0, 1000), Range("a", far, 10)])
    assert len({id(cut.block) for cut in near_cuts}) == 1
    assert [(cut.block.position, cut.block.length) for cut in far_cuts] == [(0, 1000), (far, 10)]


def test_requests_stay_within_the_window() -> None:
    store = CountedStore({"a": bytes(20 * MIB)})
    with opened(store, window_bytes=4 * MIB) as ranges:
        stream = ranges.stream([Range("a", 0, 20 * MIB)])
        taken = 0
        for fragment in stream:
            taken += len(fragment.data)
            assert sum(each.length for each in store.asked) <= taken + 4 * MIB
    assert taken == 20 * MIB
    assert len(store.asked) > 5


@pytest.mark.parametrize(("key", "error"), [("down", Unavailable), ("gone", NotFound)])
def test_an_error_of_the_store_is_raised_after_the_earlier_ranges(key: str, error: type[Exception]) -> None:
    with opened(CountedStore({"a": b"whole"})) as ranges:
        stream = ranges.stream([Range("a", 0, 5), Range(key, 0, 5)])
        assert bytes(next(stream).data) == b"whole"
        with pytest.raises(error):
            next(stream)


@pytest.mark.parametrize("wanted", [Range("a", -1, 5), Range("a", 0, 0)])
def test_an_impossible_range_is_invalid(wanted: Range) -> None:
    with opened(CountedStore({})) as ranges, pytest.raises(Invalid):
        next(ranges.stream([wanted]))


def test_a_stream_that_is_left_early_leaves_the_store_usable() -> None:
    with opened(CountedStore({"a": pattern(3 * MIB)}), window_bytes=MIB) as ranges:
        stream: Iterator[Any] = ranges.stream([Range("a", 0, 3 * MIB)])
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert joined(ranges, [Range("a", 1, 4)]) == [pattern(5)[1:]]


def test_a_store_that_cannot_be_opened_is_reported_in_one_sentence() -> None:
    with pytest.raises(Invalid, match="a store address is"):
        StoreRanges("nowhere")


def test_any_call_of_a_store_can_be_made(tmp_path: Path) -> None:
    with StoreRanges(f"file://{tmp_path}") as ranges:
        ranges.call(lambda store: store.put("key", [b"value"]))
        assert ranges.call(lambda store: store.get("key")) == b"value"


def test_an_output_of_any_size_is_stored_when_its_block_ends(tmp_path: Path) -> None:
    data = pattern(5 * MIB)
    with StoreRanges(f"file://{tmp_path}") as ranges:
        with ranges.output("large") as output:
            for _ in range(4):
                output.write(data)
        with ranges.output("small") as output:
            output.write(b"small")
        assert output.size_bytes == 5
        assert ranges.call(lambda store: store.get("large")) == 4 * data
        assert ranges.call(lambda store: store.get("small")) == b"small"


def test_no_part_of_an_output_is_stored_if_its_block_fails(tmp_path: Path) -> None:
    with StoreRanges(f"file://{tmp_path}") as ranges:
        with pytest.raises(RuntimeError, match="cancelled"), ranges.output("key") as output:
            for _ in range(3):
                output.write(bytes(6 * MIB))
            raise RuntimeError("cancelled")
        assert ranges.call(lambda store: store.list("")) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_output_never_replaces_another_object(tmp_path: Path) -> None:
    with StoreRanges(f"file://{tmp_path}") as ranges:
        ranges.call(lambda store: store.put("key", [b"value"]))
        with pytest.raises(AlreadyExists), ranges.output("key") as output:
            output.write(b"other")
        assert ranges.call(lambda store: store.get("key")) == b"value"
