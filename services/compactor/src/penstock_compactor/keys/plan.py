"""Plans the jobs of key compaction from the states of logs and their extents. Pure.

A job compacts a partition from the start of its log to the last extent that may be compacted. So it knows all later
records of a key in this range. A tombstone therefore outlives every record that it deletes. Runs of one partition are
committed in the order of their offsets, one after the other: see `job`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.contracts.batches import NO_SEGMENT_ID, AbortedTransaction, Marker
from penstock.contracts.configs.topics import CompactionConfigs
from penstock.contracts.ids import SegmentId, TopicId, segment_born_ms
from penstock.contracts.queries.compaction import LogTransactions, LogView

MIB = 1024 * 1024
MINUTE_MS = 60_000
KEY_LEVEL = 2  # of the outputs, which have one topic

PartitionId = tuple[TopicId, int]


class KeyLimits(msgspec.Struct, frozen=True):
    """The limits of jobs, and the conditions that make a log due."""

    output_bytes_max: int = 1024 * MIB  # of the input of one output
    extents_max: int = 20_000  # replaced by one command
    # Merging first moves new flushed segments to level 1, together with other topics. Key compaction reads segments of
    # level 0 only if they were not merged for this time.
    flushed_age_min_ms: int = 10 * MINUTE_MS
    # Each job has fixed costs. With fewer new bytes than this, a log waits for `dirty_age_max_ms`.
    dirty_bytes_min: int = MIB
    dirty_age_max_ms: int = 5 * MINUTE_MS
    together_bytes_max: int = 1024 * MIB  # of partitions that one task compacts, one after the other
    # Of such tasks in one job. Outputs are committed when all tasks are done, and rejected after 15 minutes.
    outputs_per_job_max: int = 4


class KeyInput(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One extent to read; a marker has no bytes, and NO_SEGMENT_ID."""

    segment_id: SegmentId
    level: int
    base_offset: int
    last_offset: int
    position: int
    length: int
    max_timestamp: int


class KeyExtent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One extent of a partition, and whether another job has leased its segment."""

    input: KeyInput
    is_leased: bool = False


class KeyRun(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive extents of one partition that become one run."""

    topic_id: TopicId
    partition: int
    cleaned_offset: int  # below it each key has one record, so its tombstones may be removed when they expire
    inputs: list[KeyInput]
    markers: list[Marker] = []  # at least those of the inputs
    aborted: list[AbortedTransaction] = []  # at least those with records or markers in the run

    @property
    def base_offset(self) -> int:
        """The first offset."""
        return self.inputs[0].base_offset

    @property
    def last_offset(self) -> int:
        """The last offset."""
        return self.inputs[-1].last_offset

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read."""
        return sum(each.length for each in self.inputs)


class KeyOutput(msgspec.Struct, frozen=True, array_like=True):
    """One segment to write."""

    runs: list[KeyRun]

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read for it."""
        return sum(run.size_bytes for run in self.runs)


class KeyJob(msgspec.Struct, frozen=True, array_like=True):
    """Whole partitions of one topic; or one partition with several outputs, in the order of its offsets."""

    topic_id: TopicId
    delete_retention_ms: int
    outputs: list[KeyOutput]
    now_ms: int  # the journal clock, which decides about tombstones; the clock of the compactor may differ

    @property
    def is_one_partition(self) -> bool:
        """Whether all outputs are of one partition; else each output has whole partitions."""
        return len({run.partition for output in self.outputs for run in output.runs}) == 1

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read."""
        return sum(output.size_bytes for output in self.outputs)

    @property
    def segment_ids(self) -> list[SegmentId]:
        """All segments to read, each once."""
        runs = (run for output in self.outputs for run in output.runs)
        found = dict.fromkeys(each.segment_id for run in runs for each in run.inputs)
        found.pop(NO_SEGMENT_ID, None)
        return list(found)


def key_plans(
    logs: Sequence[LogView],
    configs: Mapping[TopicId, CompactionConfigs],
    extents: Mapping[PartitionId, Sequence[KeyExtent]],
    now_ms: int,
    limits: KeyLimits | None = None,
    transactions: Mapping[PartitionId, LogTransactions] | None = None,
) -> list[KeyJob]:
    """The jobs for all logs that are due now; topics without configs are not compacted.

    `extents` has the extents of each partition in the order of their offsets, and `transactions` their known
    transactions. Jobs of different topics may share segments, so a job needs a lease of its segments.
    """
    limits = limits or KeyLimits()
    runs: dict[TopicId, list[KeyRun]] = {topic_id: [] for topic_id in configs}
    for log in logs:
        settings = configs.get(log.topic_id)
        if settings is None:
            continue
        key = (log.topic_id, log.partition)
        known = transactions.get(key) if transactions is not None else None
        inputs = cleanable(log, settings, extents.get(key, ()), now_ms, limits)
        if inputs and is_due(log, settings, inputs, now_ms, limits):
            markers, aborted = (known.markers, known.aborted) if known is not None else ([], [])
            runs[log.topic_id].append(KeyRun(*key, log.cleaned_offset, inputs, markers, aborted))
    return [
        KeyJob(topic_id, configs[topic_id].delete_retention_ms, outputs, now_ms)
        for topic_id, of_topic in runs.items()
        for outputs in _outputs(of_topic, limits)
    ]


def may_be_due(log: LogView, settings: CompactionConfigs, now_ms: int) -> bool:
    """Whether to query the extents of a log: false only if `is_due` would be false for any extents."""
    if 0 <= log.delete_horizon_ms <= now_ms:
        return True
    if not log.dirty_bytes:
        return False
    is_late = log.dirty_since_ms < now_ms - settings.max_lag_ms
    return is_late or log.dirty_bytes > settings.dirty_ratio_min * (log.clean_bytes + log.dirty_bytes)


def cleanable(
    log: LogView, settings: CompactionConfigs, extents: Sequence[KeyExtent], now_ms: int, limits: KeyLimits
) -> list[KeyInput]:
    """The extents from the log's start to the first one that may not be compacted yet.

    The result is empty if another job has leased a clean extent. Clean extents need not wait. The first extent may
    begin before the log's start, because only whole extents are removed.
    """
    found: list[KeyInput] = []
    for extent in extents:
        each = extent.input
        is_clean = each.last_offset < log.cleaned_offset
        if extent.is_leased or each.last_offset >= log.last_stable_offset:
            break
        if not is_clean and (_is_fresh(each, now_ms, limits) or _is_young(each, settings, now_ms)):
            break
        if found and each.base_offset != found[-1].last_offset + 1:
            break
        found.append(each)
    if not found or found[0].base_offset > log.log_start_offset or found[-1].last_offset < log.cleaned_offset - 1:
        return []
    return found


def _is_fresh(each: KeyInput, now_ms: int, limits: KeyLimits) -> bool:
    return each.level == 0 and now_ms - segment_born_ms(each.segment_id) < limits.flushed_age_min_ms


def _is_young(each: KeyInput, settings: CompactionConfigs, now_ms: int) -> bool:
    return settings.min_lag_ms > 0 and each.max_timestamp > now_ms - settings.min_lag_ms


def is_due(
    log: LogView, settings: CompactionConfigs, inputs: Sequence[KeyInput], now_ms: int, limits: KeyLimits
) -> bool:
    """Whether to compact now: because of the dirty ratio, the maximum lag of a record, or expired tombstones."""
    if all(each.segment_id == NO_SEGMENT_ID for each in inputs):
        return False  # a job of markers only has no segment to lease, so it would never run
    if 0 <= log.delete_horizon_ms <= now_ms:
        return True
    dirty = [each for each in inputs if each.last_offset >= log.cleaned_offset and each.segment_id != NO_SEGMENT_ID]
    if not dirty:
        return False
    if dirty[0].max_timestamp < now_ms - settings.max_lag_ms:
        return True
    dirty_bytes = sum(each.length for each in dirty)
    born_ms = min(segment_born_ms(each.segment_id) for each in dirty)
    if dirty_bytes < limits.dirty_bytes_min and now_ms - born_ms < limits.dirty_age_max_ms:
        return False
    return dirty_bytes > settings.dirty_ratio_min * sum(each.length for each in inputs)


def _outputs(runs: Sequence[KeyRun], limits: KeyLimits) -> list[list[KeyOutput]]:
    """The outputs of each job: large partitions have their own jobs, small ones share jobs."""
    jobs = []
    small: list[KeyRun] = []
    for run in runs:
        if run.size_bytes > limits.together_bytes_max or len(run.inputs) > limits.extents_max:
            jobs.append([KeyOutput([part]) for part in _parts(run, limits)])
        else:
            small.append(run)
    together = _together(small, limits)
    count = limits.outputs_per_job_max
    return [*jobs, *(together[start : start + count] for start in range(0, len(together), count))]


def _together(runs: Sequence[KeyRun], limits: KeyLimits) -> list[KeyOutput]:
    """Whole partitions, in order, in as few outputs as possible."""
    outputs: list[KeyOutput] = []
    taken: list[KeyRun] = []
    size = extents = 0
    for run in sorted(runs, key=lambda run: run.partition):
        is_full = size + run.size_bytes > limits.output_bytes_max or extents + len(run.inputs) > limits.extents_max
        if taken and is_full:
            outputs.append(KeyOutput(taken))
            taken, size, extents = [], 0, 0
        taken.append(run)
        size += run.size_bytes
        extents += len(run.inputs)
    return [*outputs, KeyOutput(taken)] if taken else outputs


def _parts(run: KeyRun, limits: KeyLimits) -> list[KeyRun]:
    """A large partition, cut between extents."""
    parts: list[KeyRun] = []
    inputs: list[KeyInput] = []
    size = 0
    for each in run.inputs:
        if inputs and (size + each.length > limits.output_bytes_max or len(inputs) >= limits.extents_max):
            parts.append(msgspec.structs.replace(run, inputs=inputs))
            inputs, size = [], 0
        inputs.append(each)
        size += each.length
    parts.append(msgspec.structs.replace(run, inputs=inputs))
    return parts
