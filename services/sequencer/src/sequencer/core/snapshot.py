"""The whole state as bytes, the same on every replica that applied the same entries."""

from typing import Any

import msgspec

from sequencer.core.segments import Segments
from sequencer.core.state import Group, Partition, Producer, RememberedCommit, State

_encoder = msgspec.msgpack.Encoder()


def encode_state(state: State) -> bytes:
    """Canonical bytes for comparing replicas: dicts in the order of their making, which the journal determines too."""
    return _encoder.encode(
        {
            "sequence": state.sequence,
            "clock_ms": state.clock_ms,
            "leader_epoch": state.leader_epoch,
            "segments": _segments(state.segments),
            "topics": [
                (topic.name, topic.topic_id, topic.configs, [_partition(each) for each in topic.partitions])
                for topic in state.topics.values()
            ],
            "deleted_topics": list(state.deleted_topics.items()),
            "doomed": [_partition(each) for each in state.doomed],
            "counts": (state.partition_count, state.extent_count, state.producer_count, state.group_bytes),
            "commits": [(key, _commit(value)) for key, value in state.commits.items()],
            "next_producer_id": state.next_producer_id,
            "producer_births": list(state.producer_births),
            "producer_sweep": [(each.topic_id, each.number) for each in state.producer_sweep],
            "groups": [_group(each) for each in state.groups.values()],
            "idle_groups": list(state.idle_groups.items()),
            "deadlines": sorted(state.deadlines.items()),
            "custody": msgspec.structs.astuple(state.custody),
        }
    )


def _segments(segments: Segments) -> list[Any]:
    places = (segments.levels, segments.writers, segments.zones)
    counts = (segments.sizes, segments.live_bytes, segments.live_extents, segments.condemned_ms)
    return [segments.ids, segments.names, *(column.tobytes() for column in (*places, *counts))]


def _partition(partition: Partition) -> tuple[Any, ...]:
    producers = [(producer_id, _producer(each)) for producer_id, each in partition.producers.items()]
    log = (partition.number, partition.log_start_offset, partition.high_watermark, partition.deleted)
    return (*log, partition.in_sweep, partition.extents.columns(), producers)


def _producer(producer: Producer) -> tuple[Any, ...]:
    return (producer.epoch, producer.last_sequence, producer.active_ms, producer.recent.tobytes())


def _commit(commit: RememberedCommit) -> tuple[Any, ...]:
    return (commit.forget_ms, commit.batches, commit.firsts.tobytes(), list(commit.exceptions.items()))


def _group(group: Group) -> list[Any]:
    return [
        group.group_id,
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        [msgspec.structs.astuple(member) for member in group.members.values()],
        list(group.static_members.items()),
        list(group.pending.items()),
        list(group.fenced),
        [(topic, list(partitions.items())) for topic, partitions in group.offsets.items()],
        (group.join_deadline_ms, group.initial_delay_ms, group.initial_remaining_ms, group.newcomer),
        group.sync_deadline_ms,
    ]
