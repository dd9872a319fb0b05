"""The running hash finds every other past, as far back as hashes are kept."""

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.entries import Entry
from penstock.contracts.errors import Corrupt
from penstock_sequencer.replication.hash_chain import HashChain

PASTS = st.lists(st.binary(max_size=8), min_size=1, max_size=20)


def grown(past: list[bytes], hashes_max: int = 100) -> HashChain:
    chain = HashChain(hashes_max)
    for data in past:
        chain.advance(data)
    return chain


def entry_on(chain: HashChain) -> Entry:
    return Entry("x.1", "x", chain.sequence, chain.hash, [])


@given(PASTS, st.data())
def test_an_entry_built_on_any_part_of_the_same_past_is_accepted(past: list[bytes], data: st.DataObject) -> None:
    part = data.draw(st.integers(0, len(past)))
    assert grown(past).check(entry_on(grown(past[:part])))


@given(PASTS, st.data())
def test_a_past_that_differs_anywhere_is_found(past: list[bytes], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(past) - 1))
    other = [*past[:place], past[place] + b"!", *past[place + 1 :]]
    part = data.draw(st.integers(place + 1, len(past)))
    with pytest.raises(Corrupt, match="builds on another past"):
        grown(past).check(entry_on(grown(other[:part])))


@given(PASTS)
def test_an_entry_cannot_build_on_later_entries(past: list[bytes]) -> None:
    with pytest.raises(Corrupt, match="did not exist yet"):
        grown(past[:-1]).check(entry_on(grown(past)))


def test_only_the_newest_hashes_are_kept() -> None:
    past = [bytes([number]) for number in range(10)]
    chain = grown(past, hashes_max=4)
    assert chain.check(entry_on(grown(past[:7])))
    assert not chain.check(entry_on(grown(past[:6])))


@given(PASTS, PASTS, st.integers(1, 30), st.integers(1, 30))
def test_a_chain_started_at_a_snapshot_continues_as_the_complete_one(
    past: list[bytes], more: list[bytes], kept: int, hashes_max: int
) -> None:
    whole, restored = grown(past), HashChain(hashes_max)
    restored.restore(len(past), whole.newest_hashes(kept))
    known = min(kept, len(past) + 1, hashes_max)
    assert restored.earliest_sequence == len(past) + 1 - known
    assert restored.ends_with(past[-1])
    for behind, data in enumerate(more):
        assert restored.check(entry_on(grown(past))) == (behind < min(known + behind, hashes_max))
        whole.advance(data)
        restored.advance(data)
        assert (restored.sequence, restored.hash) == (whole.sequence, whole.hash)
    first = max(len(past) + 1 - known, whole.sequence + 1 - hashes_max)
    assert restored.earliest_sequence == first
    sequences = range(len(past) + len(more) + 1)
    expected = [None if each < first else whole.hash_at(each) for each in sequences]
    assert [restored.hash_at(each) for each in sequences] == expected
    assert restored.newest_hashes(2) == [each for each in expected if each is not None][-2:]


def test_a_chain_knows_its_last_entry_if_it_knows_the_hash_before_it() -> None:
    whole, restored = grown([b"a", b"b"]), HashChain()
    assert whole.ends_with(b"b")
    assert not whole.ends_with(b"c")
    restored.restore(2, whole.newest_hashes(1))
    assert restored.ends_with(b"anything")
