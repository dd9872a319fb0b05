"""Every object key that Penstock uses, built and parsed in this one place (docs/design.md, section 4).

`prefix` may be empty: a store whose address has a prefix of its own puts that before every key.
"""

import re

import crc32c

from penstock.contracts.errors import Invalid
from penstock.contracts.ids import SegmentId, check_token, parse_ulid, ulid_text

# Folders that segments spread over, so that no part of a store's key space takes all the load. A part of the format:
# three digits of every segment's key.
SHARDS = 1000
SEGMENTS = "segments"
SNAPSHOTS = "snapshots"
JOURNAL = "journal"
LEVEL_MAX = 9  # one digit: levels above 2 are not planned

_SEQUENCE_MAX = 10**20 - 1
_SEGMENT = re.compile(r"(?:.*/)?segments/([0-9]{3})/([0-9])-([0-9A-Z]{26})")
_SNAPSHOT = re.compile(r"(?:.*/)?snapshots/([0-9]{20})")
_ARCHIVE = re.compile(r"(?:.*/)?journal/([0-9]{20})-([0-9]{20})")


def segment_key(prefix: str, cluster: str, level: int, segment_id: SegmentId) -> str:
    """Where a segment is stored: `<prefix>/<cluster>/segments/<shard>/<level>-<ulid>`."""
    assert 0 <= level <= LEVEL_MAX, f"level {level} is not one digit"
    return f"{segments_prefix(prefix, cluster)}{_shard(segment_id):03}/{level}-{ulid_text(segment_id)}"


def parse_segment_key(key: str) -> tuple[int, SegmentId]:
    """The level and id of the segment stored under a key; `Invalid` for any other key."""
    match = _SEGMENT.fullmatch(key)
    if match is None:
        raise Invalid(f"not the key of a segment: {key!r}")
    segment_id = parse_ulid(match[3])
    if _shard(segment_id) != int(match[1]):
        raise Invalid(f"segment in the wrong shard: {key!r}")
    return int(match[2]), segment_id


def segments_prefix(prefix: str, cluster: str) -> str:
    """What the keys of all segments of a cluster begin with."""
    return f"{_base(prefix, cluster)}{SEGMENTS}/"


def snapshot_key(prefix: str, cluster: str, sequence: int) -> str:
    """Where the snapshot taken at a journal sequence is stored; keys sort by sequence."""
    return f"{snapshots_prefix(prefix, cluster)}{_digits(sequence)}"


def parse_snapshot_key(key: str) -> int:
    """The journal sequence of the snapshot stored under a key; `Invalid` for any other key."""
    match = _SNAPSHOT.fullmatch(key)
    if match is None:
        raise Invalid(f"not the key of a snapshot: {key!r}")
    return int(match[1])


def snapshots_prefix(prefix: str, cluster: str) -> str:
    """What the keys of all snapshots of a cluster begin with."""
    return f"{_base(prefix, cluster)}{SNAPSHOTS}/"


def journal_archive_key(prefix: str, cluster: str, first: int, last: int) -> str:
    """Where the journal's entries from `first` to `last` are archived; keys sort by sequence."""
    assert first <= last, f"archive from {first} to {last}"
    return f"{journal_archive_prefix(prefix, cluster)}{_digits(first)}-{_digits(last)}"


def parse_journal_archive_key(key: str) -> tuple[int, int]:
    """The first and last journal sequence archived under a key; `Invalid` for any other key."""
    match = _ARCHIVE.fullmatch(key)
    if match is None:
        raise Invalid(f"not the key of a journal archive: {key!r}")
    return int(match[1]), int(match[2])


def journal_archive_prefix(prefix: str, cluster: str) -> str:
    """What the keys of a cluster's whole journal archive begin with."""
    return f"{_base(prefix, cluster)}{JOURNAL}/"


def _base(prefix: str, cluster: str) -> str:
    folder = prefix.strip("/")
    return f"{folder}/{check_token('cluster', cluster)}/" if folder else f"{check_token('cluster', cluster)}/"


def _shard(segment_id: SegmentId) -> int:
    return crc32c.crc32c(segment_id) % SHARDS


def _digits(sequence: int) -> str:
    assert 0 <= sequence <= _SEQUENCE_MAX, f"sequence {sequence} has more than 20 digits"
    return f"{sequence:020}"
