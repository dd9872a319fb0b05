"""Object keys are built and parsed without loss, and sort by their numbers."""

import pytest
from hypothesis import given, strategies as st

from penstock.contracts.errors import Invalid
from penstock.contracts.ids import new_landed_id, new_segment_id
from penstock.objectstore.store import check_key
from penstock.segment import keys

PREFIXES = st.sampled_from(["", "some/prefix", "segments", "/slashes/"])
SEQUENCES = st.integers(0, 10**20 - 1)


@given(prefix=PREFIXES, level=st.integers(0, 9), segment_id=st.binary(min_size=16, max_size=16))
def test_a_segment_key_contains_level_and_id(prefix: str, level: int, segment_id: bytes) -> None:
    key = keys.segment_key(prefix, "cluster", level, segment_id)
    assert keys.parse_segment_key(key) == (level, segment_id)
    assert check_key(key).startswith(keys.segments_prefix(prefix, "cluster"))


def test_keys_are_as_documented() -> None:
    segment_id = new_segment_id(1_700_000_000_000, bytes(10))
    assert keys.segment_key("p", "c", 0, segment_id) == "p/c/segments/969/0-01HF7YAT000000000000000000"
    assert keys.snapshot_key("", "c", 12) == "c/snapshots/00000000000000000012"
    assert keys.journal_archive_key("p/q", "c", 1, 20) == "p/q/c/journal/00000000000000000001-00000000000000000020"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_only_express_segments_that_were_not_compacted_have_landing_keys(level: int) -> None:
    express = new_landed_id(1_700_000_000_000, bytes(10))
    assert keys.is_landing_key(keys.segment_key("", "c", level, express)) is (level == 0)
    standard = new_segment_id(1_700_000_000_000, bytes(10))
    others = (keys.segment_key("", "c", level, standard), keys.snapshot_key("", "c", 12), "encryption", "c/segments/1")
    assert not any(map(keys.is_landing_key, others))


def test_segments_created_together_spread_over_many_shards() -> None:
    born = [new_segment_id(1_700_000_000_000, index.to_bytes(10, "big")) for index in range(1000)]
    shards = {keys.segment_key("", "c", 0, segment_id).split("/")[2] for segment_id in born}
    assert len(shards) > 500
    assert all(len(shard) == 3 for shard in shards)


@given(prefix=PREFIXES, sequences=st.lists(SEQUENCES, min_size=2))
def test_snapshot_keys_sort_by_sequence(prefix: str, sequences: list[int]) -> None:
    made = [keys.snapshot_key(prefix, "c", sequence) for sequence in sequences]
    assert [keys.parse_snapshot_key(key) for key in sorted(made)] == sorted(sequences)
    assert all(key.startswith(keys.snapshots_prefix(prefix, "c")) for key in made)


@given(prefix=PREFIXES, ranges=st.lists(st.tuples(SEQUENCES, SEQUENCES).map(sorted), min_size=2))
def test_archive_keys_sort_by_sequence(prefix: str, ranges: list[list[int]]) -> None:
    made = [keys.journal_archive_key(prefix, "c", first, last) for first, last in ranges]
    assert [list(keys.parse_journal_archive_key(key)) for key in sorted(made)] == sorted(ranges)
    assert all(key.startswith(keys.journal_archive_prefix(prefix, "c")) for key in made)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "c/segments/969/0-01HF7YAT00000000000000000",
        "c/segments/970/0-01HF7YAT000000000000000000",
        "c/segments/969/0-01HF7YAT00000000000000000U",
        "c/segments/969/00-01HF7YAT000000000000000000",
        "c/segments/969/0-01HF7YAT000000000000000000/x",
        "c/other/969/0-01HF7YAT000000000000000000",
        "c/segments/969/0-81HF7YAT000000000000000000",
        "c/snapshots/1",
        "c/snapshots/0000000000000000001x",
        "c/journal/00000000000000000001",
        "c/journal/00000000000000000001-2",
    ],
)
def test_other_keys_are_invalid(key: str) -> None:
    for parse in (keys.parse_segment_key, keys.parse_snapshot_key, keys.parse_journal_archive_key):
        with pytest.raises(Invalid):
            parse(key)


@pytest.mark.parametrize("cluster", ["", "a/b", "..", "a b"])
def test_a_cluster_that_is_not_a_token_is_invalid(cluster: str) -> None:
    with pytest.raises(Invalid):
        keys.segment_key("p", cluster, 0, bytes(16))


@given(prefix=PREFIXES)
def test_records_of_clusters_are_outside_of_every_cluster(prefix: str) -> None:
    key = keys.cluster_record_key(prefix, "c")
    assert check_key(key).startswith(keys.cluster_records_prefix(prefix))
    assert keys.parse_cluster_record_key(key) == "c"
    assert not key.startswith(keys.cluster_prefix(prefix, "c"))
    with pytest.raises(Invalid):
        keys.cluster_prefix(prefix, keys.REGISTRY)  # so no cluster can have this name


@pytest.mark.parametrize(
    "key", ["c/segments/1", "clusters.registry/", "clusters.registry/a.b", "clusters.registry/a/b"]
)
def test_other_keys_are_no_records_of_clusters(key: str) -> None:
    with pytest.raises(Invalid):
        keys.parse_cluster_record_key(key)
