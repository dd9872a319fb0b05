"""Cold chunks evict hot ones only within their share, and the cache never exceeds its limit."""

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


def test_catch_up_reads_use_no_more_than_their_share_of_the_cache() -> None:
    cache = ChunkCache(8 * WEIGHT)
    for index in range(8):
        cache.put(hot(index), DATA, is_cold=False)
    for index in range(100):
        cache.put(cold(index), DATA, is_cold=True)
    assert [index for index in range(8) if cache.get(hot(index)) is not None] == [4, 5, 6, 7]
    assert [index for index in range(100) if cache.get(cold(index)) is not None] == [96, 97, 98, 99]


def test_new_data_may_use_the_whole_cache() -> None:
    cache = ChunkCache(8 * WEIGHT)
    for index in range(4):
        cache.put(cold(index), DATA, is_cold=True)
    for index in range(8):
        cache.put(hot(index), DATA, is_cold=False)
    assert all(cache.get(hot(index)) is not None for index in range(8))
    assert all(cache.get(cold(index)) is None for index in range(4))


def test_evicted_chunks_are_counted() -> None:
    cache = ChunkCache(4 * WEIGHT)
    assert [cache.put(cold(index), DATA, is_cold=True) for index in range(3)] == [0, 0, 1]
    assert [cache.put(hot(index), DATA, is_cold=False) for index in range(5)] == [0, 0, 1, 1, 1]
    assert len(cache) == 4


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 5 * SIZE)), max_size=60))
def test_the_cache_stays_within_its_limit_and_returns_the_right_bytes(puts: list[tuple[bool, int, int]]) -> None:
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
            assert found == data, "the last chunk put is cached"
