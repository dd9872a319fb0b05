"""The cache never exceeds its limit, and evicts the least recently used entry first."""

from hypothesis import given, strategies as st

from penstock_cacher.chunk_cache import ENTRY_OVERHEAD_BYTES, LruCache


def bytes_for(*sizes: int) -> int:
    return sum(sizes) + len(sizes) * ENTRY_OVERHEAD_BYTES


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache = LruCache[str](bytes_for(10, 10))
    assert cache.put("a", bytes(10)) == 0
    assert cache.put("b", bytes(10)) == 0
    assert cache.get("a") == bytes(10)
    assert cache.put("c", bytes(10)) == 1
    assert cache.get("b") is None
    assert cache.get("a") == bytes(10)
    assert cache.get("c") == bytes(10)


def test_one_large_entry_evicts_several_small_ones() -> None:
    cache = LruCache[str](bytes_for(10, 10, 10))
    for key in "abc":
        cache.put(key, bytes(10))
    assert cache.put("d", bytes(10 + 10 + 2 * ENTRY_OVERHEAD_BYTES)) == 3
    assert len(cache) == 1


def test_an_entry_larger_than_the_cache_is_not_kept_and_evicts_nothing() -> None:
    cache = LruCache[str](bytes_for(10))
    cache.put("a", bytes(10))
    assert cache.put("b", bytes(11)) == 0
    assert cache.get("b") is None
    assert cache.get("a") == bytes(10)


@given(
    st.integers(ENTRY_OVERHEAD_BYTES, 5_000),
    st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 1_500)), max_size=80),
)
def test_it_agrees_with_a_plain_list_and_never_exceeds_its_limit(
    bytes_max: int, steps: list[tuple[bool, int, int]]
) -> None:
    cache = LruCache[int](bytes_max)
    model: list[tuple[int, int]] = []  # keys and sizes, the least recently used first
    for is_put, key, size in steps:
        held = next((entry for entry in model if entry[0] == key), None)
        if is_put:
            model = [entry for entry in model if entry[0] != key]
            cache.put(key, bytes(size))
            if bytes_for(size) <= bytes_max:
                model.append((key, size))
            while bytes_for(*(size for _, size in model)) > bytes_max:
                model.pop(0)
        else:
            found = cache.get(key)
            assert (found is None) == (held is None)
            if held is not None:
                assert found is not None
                assert len(found) == held[1]
                model = [entry for entry in model if entry[0] != key] + [held]
        assert cache.held_bytes == bytes_for(*(size for _, size in model)) <= bytes_max
        assert len(cache) == len(model)
