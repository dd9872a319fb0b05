"""Storage: segments by level, dead bytes, the work of compactors, janitors and custodian, and a partition's extents."""

import msgspec

from penstock.contracts.batches import NO_SEGMENT_ID
from penstock.contracts.queries.compaction import SegmentsQuery, SegmentsView
from penstock.contracts.queries.janitor import UsageQuery, UsageView
from penstock.contracts.queries.log import Plan, PlanPartition, PlanQuery
from penstock.contracts.rejections import Rejection, check_known
from penstock_console.pages.context import Request, Sources
from penstock_console.pages.errors import NotFound
from penstock_console.pages.topics import found_topic
from penstock_console.survey.histograms import total
from penstock_console.survey.processes import Reading

SEGMENTS_PER_QUERY = 2_000
SEGMENTS_READ_MAX = 40_000
EXTENTS_READ_MAX = 5_000
STRIP_PARTS_MAX = 200
BYTES_MAX = 2**50
MARKER_LEVEL = -1


class Level(msgspec.Struct, frozen=True):
    """The live segments of a level."""

    level: int
    segments: int
    size_bytes: int
    live_bytes: int
    waiting_bytes: int  # that a merge could still take


class Job(msgspec.Struct, frozen=True):
    """Running compaction jobs of a kind."""

    kind: str
    running: int


class StoragePage(msgspec.Struct, frozen=True):
    """All objects that the journal knows, and the state of maintenance; None where no process reports it."""

    segments: int
    extents: int
    live_bytes: int
    dead_bytes: int
    pending_delete_segments: int
    pending_delete_bytes: int
    oldest_dead_seconds: float | None
    orphaned_bytes: float | None  # as of the last sweep
    overdue_bytes: float | None
    retention_lag_seconds: float | None
    snapshot_age_seconds: float | None
    archive_lag_entries: float | None
    levels: list[Level]
    is_cut: bool  # there are more segments than the console reads
    jobs: list[Job]


class StripPart(msgspec.Struct, frozen=True):
    """Neighbouring extents of one level; level -1 are transaction markers."""

    level: int
    base_offset: int
    last_offset: int
    extents: int
    size_bytes: int


class PartitionPage(msgspec.Struct, frozen=True):
    """The extents of a partition in the order of offsets."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    stable_offset: int
    size_bytes: int
    extents: int
    is_cut: bool
    strip: list[StripPart]


async def storage(sources: Sources, _request: Request) -> StoragePage:
    """Everything that the journal knows of the store."""
    reading = await sources.processes.current()
    usage = await sources.sequencers.query("usage", UsageQuery(0), UsageView)
    levels, is_cut = await _levels(sources, reading)
    dead_s = (usage.clock_ms - usage.dead_since_ms) / 1000 if usage.dead_since_ms >= 0 else None
    applied = _largest(reading, "penstock_sequencer_applied_sequence")
    archived = _largest(reading, "penstock_sequencer_archived_sequence")
    return StoragePage(
        segments=usage.segments,
        extents=usage.extents,
        live_bytes=usage.live_bytes,
        dead_bytes=usage.dead_bytes,
        pending_delete_segments=usage.dead_segments,
        pending_delete_bytes=usage.dead_segment_bytes,
        oldest_dead_seconds=dead_s,
        orphaned_bytes=_gauge(reading, "penstock_janitor_bytes", state="orphaned"),
        overdue_bytes=_gauge(reading, "penstock_janitor_overdue_bytes"),
        retention_lag_seconds=_largest(reading, "penstock_janitor_retention_lag_seconds"),
        snapshot_age_seconds=_largest(reading, "penstock_sequencer_snapshot_age_seconds"),
        archive_lag_entries=None if applied is None or archived is None else max(applied - archived, 0.0),
        levels=levels,
        is_cut=is_cut,
        jobs=_jobs(reading),
    )


async def partition(sources: Sources, _request: Request, name: str, number: int) -> PartitionPage:
    """The extents of one partition; `Invalid` if there is no such partition."""
    _, topic = await found_topic(sources, name)
    if not 0 <= number < len(topic.size_bytes):
        raise NotFound(f"topic {name!r} has no partition {number}, but {len(topic.size_bytes)} from 0")
    offset, extents, is_cut = topic.log_start_offsets[number], 0, False
    strip: list[StripPart] = []
    while True:
        wanted = PlanPartition(topic.topic_id, number, offset, BYTES_MAX)
        plan = (await sources.sequencers.query("plan", PlanQuery(0, [wanted], BYTES_MAX), Plan)).partitions[0]
        check_known(plan.rejection)
        if plan.rejection == Rejection.UNKNOWN_TOPIC:  # it was deleted since the survey
            raise NotFound(f"there is no partition {name}/{number} any more")
        if not plan.extents and offset < plan.log_start_offset:  # records were removed since the survey
            offset = plan.log_start_offset
            continue
        if not plan.extents:
            break
        for each in plan.extents:
            level = MARKER_LEVEL if each.segment.segment_id == NO_SEGMENT_ID else each.segment.level
            _extend(strip, StripPart(level, each.base_offset, each.last_offset, 1, each.length))
        extents += len(plan.extents)
        offset = plan.extents[-1].last_offset + 1
        if extents >= EXTENTS_READ_MAX:
            is_cut = offset < plan.high_watermark
            break
    return PartitionPage(
        name,
        number,
        plan.log_start_offset,
        plan.high_watermark,
        plan.last_stable_offset,
        topic.size_bytes[number],
        extents,
        is_cut,
        _shortened(strip),
    )


def _extend(strip: list[StripPart], part: StripPart) -> None:
    if strip and strip[-1].level == part.level:
        strip[-1] = _joined(strip[-1], part, part.level)
    else:
        strip.append(part)


def _joined(first: StripPart, second: StripPart, level: int) -> StripPart:
    return StripPart(
        level,
        first.base_offset,
        second.last_offset,
        first.extents + second.extents,
        first.size_bytes + second.size_bytes,
    )


def _shortened(strip: list[StripPart]) -> list[StripPart]:
    """At most STRIP_PARTS_MAX parts: neighbours are joined, under the level of the larger one."""
    while len(strip) > STRIP_PARTS_MAX:
        pairs = [strip[index : index + 2] for index in range(0, len(strip), 2)]
        strip = [
            pair[0] if len(pair) == 1 else _joined(pair[0], pair[1], max(pair, key=lambda each: each.size_bytes).level)
            for pair in pairs
        ]
    return strip


async def _levels(sources: Sources, reading: Reading) -> tuple[list[Level], bool]:
    counts: dict[int, list[int]] = {}
    row, read = 0, 0
    while row >= 0 and read < SEGMENTS_READ_MAX:
        view = await sources.sequencers.query("segments", SegmentsQuery(0, row, [], SEGMENTS_PER_QUERY), SegmentsView)
        for each in view.segments:
            found = counts.setdefault(each.level, [0, 0, 0])
            found[0] += 1
            found[1] += each.size_bytes
            found[2] += each.live_bytes
        read += len(view.segments)
        row = view.next_row
    levels = [
        Level(
            level,
            found[0],
            found[1],
            found[2],
            int(total(reading.sums, "penstock_compactor_waiting_bytes", level=str(level))),
        )
        for level, found in sorted(counts.items())
    ]
    return levels, row >= 0


def _jobs(reading: Reading) -> list[Job]:
    found: dict[str, int] = {}
    for (name, labels), value in reading.sums.items():
        if name == "penstock_compactor_running_jobs":
            found[dict(labels)["kind"]] = int(value)
    return [Job(kind, count) for kind, count in sorted(found.items())]


def _gauge(reading: Reading, name: str, **labels: str) -> float | None:
    wanted = set(labels.items())
    values = [value for (each, found), value in reading.sums.items() if each == name and wanted <= set(found)]
    return sum(values) if values else None


def _largest(reading: Reading, name: str) -> float | None:
    values = [value for each in reading.processes for (found, _), value in each.samples.items() if found == name]
    return max(values) if values else None
