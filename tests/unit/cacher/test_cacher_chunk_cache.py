"""Old data in the cache never pushes out more than its share of the new, and never more is held than allowed."""

import hypothesis.strategies as st
from hypothesis import given

from penstock_cacher.chunk_cache import COLD_SHARE, ENTRY_OVERHEAD_BYTES, ChunkCache
from penstock_cacher.chunks import Chunk

SIZE = 1_000
WEIGHT = SIZE + ENTRY_OVERHEAD_BYTES
DATA = bytes(SIZE)


def hot(index: int) -> Chunk:
    return Chunk(bytes(16), index, 0, SIZE)


def cold(index: int, level: int = 2) -> Chunk:
    return Chunk(bytes(16), index, level, SIZE)


def test_a_replay_takes_no_more_than_its_share_of_the_room() -> None:
    cache = ChunkCache(8 * WEIGHT)
    for index in range(8):
        cache.put(hot(index), DATA, is_cold=False)
    for index in range(100):
        cache.put(cold(index), DATA, is_cold=True)
    assert [index for index in range(8) if cache.get(hot(index)) is not None] == [4, 5, 6, 7]
    assert [index for index in range(100) if cache.get(cold(index)) is not None] == [96, 97, 98, 99]


def test_new_data_takes_all_the_room_that_it_needs() -> None:
    cache = ChunkCache(8 * WEIGHT)
    for index in range(4):
        cache.put(cold(index), DATA, is_cold=True)
    for index in range(8):
        cache.put(hot(index), DATA, is_cold=False)
    assert all(cache.get(hot(index)) is not None for index in range(8))
    assert all(cache.get(cold(index)) is None for index in range(4))


def test_what_had_to_go_is_counted() -> None:
    cache = ChunkCache(4 * WEIGHT)
    assert [cache.put(cold(index), DATA, is_cold=True) for index in range(3)] == [0, 0, 1]
    assert [cache.put(hot(index), DATA, is_cold=False) for index in range(5)] == [0, 0, 1, 1, 1]
    assert len(cache) == 4


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 5 * SIZE)), max_size=60))
def test_never_more_is_held_than_allowed_and_what_is_held_is_right(puts: list[tuple[bool, int, int]]) -> None:
    bytes_max = 6 * WEIGHT
    cache = ChunkCache(bytes_max)
    for number, (is_hot, index, size) in enumerate(puts):
        chunk = hot(index) if is_hot else cold(index)
        data = bytes([number]) * size
        cache.put(chunk, data, is_cold=not is_hot)
        assert cache.held_bytes <= bytes_max
        cold_bytes = sum(len(found) for each in range(10) if (found := cache.get(cold(each))) is not None)
        assert cold_bytes <= bytes_max // COLD_SHARE
        found = cache.get(chunk)
        assert found is None or found == data
        if size + ENTRY_OVERHEAD_BYTES <= bytes_max // COLD_SHARE:
            assert found == data, "what was put last is there"
