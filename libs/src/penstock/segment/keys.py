"""Building and parsing of all object keys; no other module does that (docs/design.md, section 4).

`prefix` may be empty: a store adds the prefix of its own address to every key.
"""

import re

import crc32c

from penstock.contracts.errors import Invalid
from penstock.contracts.ids import SegmentId, check_token, is_landed, parse_ulid, ulid_text

# The number of folders for segments; they spread the load over a store's key space. This is a part of the format: three
# digits of every segment's key.
SHARDS = 1000
SEGMENTS = "segments"
SNAPSHOTS = "snapshots"
JOURNAL = "journal"
REGISTRY = "clusters.registry"  # no cluster has this name: the dot is not legal in a cluster's name
CLEANUP = "cleanup-"
FLUSHED_LEVEL = 0
LEVEL_MAX = 9  # one digit: levels above 2 are not planned

_SEQUENCE_MAX = 10**20 - 1
_SEGMENT = re.compile(r"(?:.*/)?segments/([0-9]{3})/([0-9])-([0-9A-Z]{26})")
_SNAPSHOT = re.compile(r"(?:.*/)?snapshots/([0-9]{20})")
_CLUSTER_RECORD = re.compile(r"(?:.*/)?clusters\.registry/([^/]+)")
_ARCHIVE = re.compile(r"(?:.*/)?journal/([0-9]{20})-([0-9]{20})")


def segment_key(prefix: str, cluster: str, level: int, segment_id: SegmentId) -> str:
    """The key of a segment: `<prefix>/<cluster>/segments/<shard>/<level>-<ulid>`."""
    assert 0 <= level <= LEVEL_MAX, f"level {level} is not one digit"
    return f"{segments_prefix(prefix, cluster)}{_shard(segment_id):03}/{level}-{ulid_text(segment_id)}"


def parse_segment_key(key: str) -> tuple[int, SegmentId]:
    """The level and id in the key of a segment; `Invalid` for any other key."""
    match = _SEGMENT.fullmatch(key)
    if match is None:
        raise Invalid(f"not the key of a segment: {key!r}")
    segment_id = parse_ulid(match[3])
    if _shard(segment_id) != int(match[1]):
        raise Invalid(f"segment in the wrong shard: {key!r}")
    return int(match[2]), segment_id


def parse_own_segment_key(key: str, prefix: str, cluster: str) -> tuple[int, SegmentId]:
    """As `parse_segment_key`; `Invalid` also for a copy in another folder, which is no segment of the cluster."""
    level, segment_id = parse_segment_key(key)
    if key != segment_key(prefix, cluster, level, segment_id):
        raise Invalid(f"not the key of a segment of cluster {cluster}: {key!r}")
    return level, segment_id


def is_landing_key(key: str) -> bool:
    """Whether the object belongs into the landing store: a landed segment that was not compacted yet."""
    try:
        level, segment_id = parse_segment_key(key)
    except Invalid:
        return False
    return level == FLUSHED_LEVEL and is_landed(segment_id)


def may_list_segments(prefix: str) -> bool:
    """Whether a listing with this prefix may have segments, for keys that begin with the cluster."""
    *folders, rest = prefix.split("/")
    if not folders or SEGMENTS in folders:
        return True
    is_other = len(folders) > 1 and folders[-1] in (SNAPSHOTS, JOURNAL)
    return not is_other and SEGMENTS.startswith(rest)


def segments_prefix(prefix: str, cluster: str) -> str:
    """The common prefix of the keys of a cluster's segments."""
    return f"{_base(prefix, cluster)}{SEGMENTS}/"


def snapshot_key(prefix: str, cluster: str, sequence: int) -> str:
    """The key of the snapshot at a journal sequence; keys sort by sequence."""
    return f"{snapshots_prefix(prefix, cluster)}{_digits(sequence)}"


def parse_snapshot_key(key: str) -> int:
    """The journal sequence in the key of a snapshot; `Invalid` for any other key."""
    match = _SNAPSHOT.fullmatch(key)
    if match is None:
        raise Invalid(f"not the key of a snapshot: {key!r}")
    return int(match[1])


def snapshots_prefix(prefix: str, cluster: str) -> str:
    """The common prefix of the keys of a cluster's snapshots."""
    return f"{_base(prefix, cluster)}{SNAPSHOTS}/"


def journal_archive_key(prefix: str, cluster: str, first: int, last: int) -> str:
    """The key of the archive of the journal's entries from `first` to `last`; keys sort by sequence."""
    assert first <= last, f"archive from {first} to {last}"
    return f"{journal_archive_prefix(prefix, cluster)}{_digits(first)}-{_digits(last)}"


def parse_journal_archive_key(key: str) -> tuple[int, int]:
    """The first and last journal sequence in the key of an archive; `Invalid` for any other key."""
    match = _ARCHIVE.fullmatch(key)
    if match is None:
        raise Invalid(f"not the key of a journal archive: {key!r}")
    return int(match[1]), int(match[2])


def journal_archive_prefix(prefix: str, cluster: str) -> str:
    """The common prefix of the keys of a cluster's journal archive."""
    return f"{_base(prefix, cluster)}{JOURNAL}/"


def cluster_prefix(prefix: str, cluster: str) -> str:
    """The common prefix of the keys of all objects of a cluster."""
    return _base(prefix, cluster)


def cleanup_key(prefix: str, cluster: str, name: str) -> str:
    """The key of an object that the cleanup of a deleted cluster writes, to learn the time of the store."""
    return f"{_base(prefix, cluster)}{CLEANUP}{name}"


def is_cleanup_key(key: str, prefix: str, cluster: str) -> bool:
    """Whether a cleanup of the cluster wrote the object. It may be left if the cluster came back."""
    return key.startswith(cleanup_key(prefix, cluster, ""))


def cluster_record_key(prefix: str, cluster: str) -> str:
    """The key of a cluster's record in the registry; it is outside of every cluster's prefix."""
    return f"{cluster_records_prefix(prefix)}{check_token('cluster', cluster)}"


def parse_cluster_record_key(key: str) -> str:
    """The name in the key of a cluster's record; `Invalid` for any other key."""
    match = _CLUSTER_RECORD.fullmatch(key)
    if match is None:
        raise Invalid(f"not the key of a cluster's record: {key!r}")
    return check_token("cluster", match[1])


def cluster_records_prefix(prefix: str) -> str:
    """The common prefix of the keys of all records of clusters."""
    return f"{_folder(prefix)}{REGISTRY}/"


def _base(prefix: str, cluster: str) -> str:
    return f"{_folder(prefix)}{check_token('cluster', cluster)}/"


def _folder(prefix: str) -> str:
    folder = prefix.strip("/")
    return f"{folder}/" if folder else ""


def _shard(segment_id: SegmentId) -> int:
    return crc32c.crc32c(segment_id) % SHARDS


def _digits(sequence: int) -> str:
    assert 0 <= sequence <= _SEQUENCE_MAX, f"sequence {sequence} has more than 20 digits"
    return f"{sequence:020}"
