"""The part of `World` that all kinds of clients share: a state with a clock, and short methods for commands."""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.contracts.batches import MARKER_BYTES, BatchMeta, BatchResult, BatchRun
from penstock.contracts.commands import (
    AllocateProducer,
    AlterConfigs,
    Command,
    CommitOffsets,
    CommitSegment,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    Done,
    OffsetToCommit,
    Outcome,
    OutputSegment,
    RaiseLevel,
    ReplacedRun,
    ReplaceExtents,
    Tick,
)
from penstock.contracts.ids import TopicId, new_segment_id, new_topic_id
from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL
from penstock_sequencer.core.log import control_markers
from penstock_sequencer.core.machine import Effects, apply_entry
from penstock_sequencer.core.state.cluster import Group, Partition, State, new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from tests.unit.sequencer.core.core_invariants import check_invariants

START_MS = 1_700_000_000_000


def topic_id(number: int) -> TopicId:
    return new_topic_id(number.to_bytes(16, "big"))


def batch(
    records: int = 1,
    length: int = 100,
    timestamp: int = START_MS,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    *,
    adds: bool = False,
) -> BatchMeta:
    return BatchMeta(length, records, timestamp, producer, epoch, sequence, attributes, adds)


class Machine:
    """A state with its own clock; the functions in `on_entry` check it after each entry, the invariants first."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, level: int = 0) -> None:
        self.state: State = new_state(limits)
        self.now_ms = START_MS
        self.segments = 0
        self.effects: Effects | None = None
        self.on_entry: list[Callable[[State], object]] = [check_invariants]
        if level:
            self.do(RaiseLevel(self.now_ms, level))

    def entry(self, *requests: Sequence[Command]) -> list[list[Outcome]]:
        outcomes, self.effects = apply_entry(self.state, self.state.sequence + 1, [list(each) for each in requests])
        for check in self.on_entry:
            check(self.state)
        return outcomes

    def do(self, command: Command) -> Any:
        return self.entry([command])[0][0]

    def wait(self, duration_ms: int) -> None:
        """Let time pass, and send a Tick."""
        self.now_ms += duration_ms
        self.do(Tick(self.now_ms))

    def topic(self, name: str = "t", partitions: int = 1, number: int = 1, **configs: str) -> Any:
        return self.do(CreateTopic(self.now_ms, name, topic_id(number), partitions, configs))

    def segment_command(
        self, *runs: tuple[int, int, list[BatchMeta]], born_ms: int | None = None, zone: str = "z1"
    ) -> CommitSegment:
        """A commit of one segment; the runs, as (topic number, partition, batches), lie one after the other."""
        self.segments += 1
        position = 0
        laid_out = []
        for number, partition, batches in runs:
            laid_out.append(BatchRun(topic_id(number), partition, position, batches))
            position += sum(each.length for each in batches)
        identifier = new_segment_id(self.now_ms if born_ms is None else born_ms, self.segments.to_bytes(10, "big"))
        return CommitSegment(self.now_ms, identifier, position, "flusher-1", zone, laid_out)

    def produce(self, *batches: BatchMeta, partition: int = 0, number: int = 1) -> list[BatchResult]:
        """Commit one segment with one run."""
        results: list[BatchResult] = self.do(self.segment_command((number, partition, list(batches)))).runs[0]
        return results

    def job(
        self, *runs: tuple[int, int, int, int], level: int = 1, born_ms: int | None = None, **more: Any
    ) -> ReplaceExtents:
        """A job with one new output; the runs are (topic number, partition, first extent, last extent plus one)."""
        self.segments += 1
        identifier = new_segment_id(self.now_ms if born_ms is None else born_ms, self.segments.to_bytes(10, "big"))
        inputs: dict[bytes, int] = {}
        replaced: list[ReplacedRun] = []
        position = 0
        for number, partition, first, end in runs:
            columns = self.partition(number, partition).extents
            rows = range(columns.head + first, columns.head + end)
            named: list[int] = []
            for row in rows:
                segment_id = control_markers.segment_id(self.state, columns.segments[row])
                named += (inputs.setdefault(segment_id, len(inputs)), columns.positions[row])
            length = sum(columns.lengths[row] or MARKER_BYTES for row in rows)
            ends = (columns.base_offsets[rows[0]], columns.last_offsets[rows[-1]])
            newest = max(columns.timestamps[row] for row in rows)
            replaced.append(ReplacedRun(topic_id(number), partition, *ends, named, 0, position, length, newest, **more))
            position += length
        return ReplaceExtents(self.now_ms, "job", list(inputs), [OutputSegment(identifier, level, position)], replaced)

    def configure(self, **configs: str) -> None:
        """Raise the level, and set these configurations of the cluster."""
        self.do(RaiseLevel(self.now_ms, OFFSET_EXPIRY_LEVEL))
        self.configure_again(**configs)

    def configure_again(self, **configs: str) -> None:
        """Set these configurations of the cluster."""
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in configs.items()]
        assert self.do(AlterConfigs(self.now_ms, "", changes)) == Done()

    def partition(self, number: int = 1, partition: int = 0) -> Partition:
        return self.state.topics_by_id[topic_id(number)].partitions[partition]

    def extents(self, number: int = 1, partition: int = 0) -> list[tuple[int, int, int]]:
        """A partition's extents as (first offset, last offset, level of the segment)."""
        columns = self.partition(number, partition).extents
        levels = self.state.segments.levels
        return [
            (columns.base_offsets[row], columns.last_offsets[row], levels[columns.segments[row]])
            for row in range(columns.head, columns.end)
        ]

    def producer(self) -> int:
        producer_id: int = self.do(AllocateProducer(self.now_ms)).producer_id
        return producer_id

    def group(self, group_id: str = "g") -> Group:
        return self.state.groups[group_id]

    def commit_offset(
        self,
        offset: int = 5,
        *,
        topic: str = "t",
        partition: int = 0,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        metadata: str = "",
        seen: int = -1,
    ) -> Any:
        item = OffsetToCommit(topic, partition, offset, 1, metadata)
        return self.do(CommitOffsets(self.now_ms, "g", generation, member_id, instance, [item], seen))

    def use_limits(self, limits: Limits) -> None:
        """Use these limits from now on, like a replica of another release that restores a snapshot."""
        self.state.limits = limits
