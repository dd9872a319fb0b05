"""A journal in a file, and the summary of the state that a release makes from it.

`python -m tests.testkit.loads.recorded_journal FOLDER` prints the summary by the code on PYTHONPATH. That may be the
code of an older release, so this module uses only what all releases have.
"""

import json
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from penstock.contracts.entries import GENESIS_HASH, decode_entry, next_hash
from penstock.contracts.queries.log import PlanPartition, PlanQuery
from penstock.contracts.queries.topics import MetadataQuery
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import Group, Partition, State, new_state

ENTRIES_FILE = "entries.zst"
SUMMARY_FILE = "summary.json"
EVERYTHING = 2**40  # bytes
_LENGTH = struct.Struct(">I")


def write_entries(folder: Path, entries: list[bytes]) -> None:
    """Store all entries of a journal."""
    packed = b"".join(_LENGTH.pack(len(entry)) + entry for entry in entries)
    (folder / ENTRIES_FILE).write_bytes(zstandard.ZstdCompressor(level=19).compress(packed))


def read_entries(folder: Path) -> list[bytes]:
    """All entries of a stored journal."""
    packed = zstandard.ZstdDecompressor().decompress((folder / ENTRIES_FILE).read_bytes())
    entries = []
    at = 0
    while at < len(packed):
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        entries.append(packed[at : at + length])
        at += length
    return entries


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary by the release that recorded the entries."""
    summary: dict[str, Any] = json.loads((folder / SUMMARY_FILE).read_text())
    return summary


def replay(entries: list[bytes]) -> dict[str, Any]:
    """Apply the entries, and summarize the results in values of JSON."""
    state = new_state()
    running = GENESIS_HASH
    outcomes: Counter[str] = Counter()
    for sequence, data in enumerate(entries, 1):
        entry = decode_entry(data)
        answers, _ = apply_entry(state, sequence, entry.requests)
        outcomes.update(type(outcome).__name__ for request in answers for outcome in request)
        running = next_hash(running, data)
    summary = {"hash": running.hex(), "outcomes": dict(sorted(outcomes.items())), **summary_of(state)}
    normal: dict[str, Any] = json.loads(json.dumps(summary))
    return normal


def summary_of(state: State) -> dict[str, Any]:
    """The parts of a state that clients and operators can see."""
    return {
        "sequence": state.sequence,
        "clock_ms": state.clock_ms,
        "next_producer_id": state.next_producer_id,
        "topics": {
            topic.name: {
                "id": topic.topic_id.hex(),
                "configs": topic.configs,
                "partitions": [_partition(state, partition) for partition in topic.partitions],
            }
            for topic in state.topics.values()
        },
        "answered_topics": [topic.name for topic in queries.metadata(state, MetadataQuery(0, None)).topics],
        "deleted_topics": {topic_id.hex(): expires_ms for topic_id, expires_ms in state.deleted_topics.items()},
        "commits": [key.hex() for key in state.commits],
        "groups": {group_id: _group(group) for group_id, group in state.groups.items()},
    }


def _partition(state: State, partition: Partition) -> dict[str, Any]:
    wanted = PlanPartition(partition.topic_id, partition.number, partition.log_start_offset, EVERYTHING)
    [found] = queries.plan(state, PlanQuery(0, [wanted], EVERYTHING)).partitions
    return {
        "log_start_offset": partition.log_start_offset,
        "high_watermark": partition.high_watermark,
        "extents": msgspec.to_builtins(found.extents),
        "producers": {
            str(producer_id): [producer.epoch, producer.last_sequence, producer.active_ms, list(producer.recent)]
            for producer_id, producer in partition.producers.items()
        },
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "state": group.state,
        "generation": group.generation,
        "protocol": [group.protocol_type, group.protocol],
        "leader": group.leader,
        "members": list(group.members),
        "static_members": group.static_members,
        "offsets": {
            topic: {str(partition): [each.offset, each.metadata] for partition, each in partitions.items()}
            for topic, partitions in group.offsets.items()
        },
    }


if __name__ == "__main__":
    print(json.dumps(replay(read_entries(Path(sys.argv[1])))))
