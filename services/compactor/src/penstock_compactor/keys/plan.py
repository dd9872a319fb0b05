"""What key compaction has to do: pure, from how the logs stand and where their extents are to jobs.

A partition is compacted as a whole, from the start of its log to the last extent that may be: so that for every record
that stays or goes all later ones of its key up to there are known, and a tombstone outlives everything it deletes. Runs
of one partition are committed in the order of their offsets, each only after the one before: see `key_job`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.contracts.batches import NO_SEGMENT_ID, AbortedTransaction, Marker
from penstock.contracts.configs.topics import CompactionConfigs
from penstock.contracts.ids import SegmentId, TopicId, segment_born_ms
from penstock.contracts.queries.compaction import LogTransactions, LogView

MIB = 1024 * 1024
MINUTE_MS = 60_000
KEY_LEVEL = 2  # of what is written: one topic

PartitionId = tuple[TopicId, int]


class KeyLimits(msgspec.Struct, frozen=True):
    """What bounds and paces the jobs."""

    output_bytes_max: int = 1024 * MIB  # of input of one output
    extents_max: int = 20_000  # replaced by one command
    # Merging takes what was just flushed to level 1 first, together with other topics; what it leaves alone that long
    # is taken from level 0.
    flushed_age_min_ms: int = 10 * MINUTE_MS
    # A job has a price of its own: less than this is worth one only after a while.
    dirty_bytes_min: int = MIB
    dirty_age_max_ms: int = 5 * MINUTE_MS
    together_bytes_max: int = 1024 * MIB  # of partitions that one task compacts by itself, one after the other
    # Of such tasks in one job: outputs are committed when all are there, and nobody takes one older than 15 minutes.
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
    """One extent of a partition, and whether another job has its segment."""

    input: KeyInput
    is_leased: bool = False


class KeyRun(msgspec.Struct, frozen=True, array_like=True):
    """Extents of one partition, one behind the other, that become one run."""

    topic_id: TopicId
    partition: int
    cleaned_offset: int  # below it nothing has an older record of its key: tombstones may go when it is time
    inputs: list[KeyInput]
    markers: list[Marker] = []  # of the inputs that are such, and maybe others
    aborted: list[AbortedTransaction] = []  # all that were of transactions with anything in it, and maybe others

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
        """To be read."""
        return sum(each.length for each in self.inputs)


class KeyOutput(msgspec.Struct, frozen=True, array_like=True):
    """One segment to write."""

    runs: list[KeyRun]

    @property
    def size_bytes(self) -> int:
        """To be read for it."""
        return sum(run.size_bytes for run in self.runs)


class KeyJob(msgspec.Struct, frozen=True, array_like=True):
    """Whole partitions of one topic; or one that takes several outputs, in the order of its offsets."""

    topic_id: TopicId
    delete_retention_ms: int
    outputs: list[KeyOutput]
    now_ms: int  # the state machine's time, which decides on tombstones: whoever does the job may have another

    @property
    def is_one_partition(self) -> bool:
        """Whether all outputs are of one partition; else each output has whole partitions."""
        return len({run.partition for output in self.outputs for run in output.runs}) == 1

    @property
    def size_bytes(self) -> int:
        """To be read."""
        return sum(output.size_bytes for output in self.outputs)

    @property
    def segment_ids(self) -> list[SegmentId]:
        """All segments that are read, each once."""
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
    """A job for everything that is worth one now; topics without configs are not compacted.

    `extents` has those of each partition in the order of their offsets, and `transactions` what is known of those. Jobs
    of different topics may share segments: whoever runs them claims these.
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
    """Whether it is worth asking for the extents of a log: false only where `is_due` would be, whatever they are."""
    if 0 <= log.delete_horizon_ms <= now_ms:
        return True
    if not log.dirty_bytes:
        return False
    is_late = log.dirty_since_ms < now_ms - settings.max_lag_ms
    return is_late or log.dirty_bytes > settings.dirty_ratio_min * (log.clean_bytes + log.dirty_bytes)


def cleanable(
    log: LogView, settings: CompactionConfigs, extents: Sequence[KeyExtent], now_ms: int, limits: KeyLimits
) -> list[KeyInput]:
    """The extents from the log's start to the first that may not be compacted yet; none if the clean ones are not free.

    Extents that were compacted already have nothing to wait for. The first may begin before the log's start: an extent
    goes only as a whole.
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
    """Whether to compact now: by the dirty part of the log, by a record's greatest lag, or since tombstones may go."""
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
    """Those of each job: large partitions by themselves, small ones together."""
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
    """Whole partitions, in order, in as few outputs as can be."""
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
    """A large partition cut between extents."""
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
