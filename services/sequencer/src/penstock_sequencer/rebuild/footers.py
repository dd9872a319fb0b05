"""Finds segments whose commits may be lost (level 0, young, unknown to the state), and reads their footers."""

import asyncio

from penstock.contracts.errors import Corrupt, Invalid
from penstock.contracts.ids import SegmentId, segment_born_ms
from penstock.objectstore import NotFound, ObjectInfo, ObjectStore
from penstock.segment import SegmentIndex, read_index_of
from penstock.segment.keys import parse_segment_key, segments_prefix
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.rebuild.report import Report, segment_name
from penstock_sequencer.storage.snapshot_store import NO_PREFIX

READS_MAX = 16  # at the same time
LEVEL = 0  # as flushers write; segments above it hold only data of other segments


async def read_lost_segments(
    store: ObjectStore, cluster: str, state: State, now_ms: int, report: Report
) -> list[SegmentIndex]:
    """The footers of all segments that may have been committed after the state's last entry."""
    infos = await _list_unknown(store, cluster, state, now_ms, report)
    report.young_segments = len(infos)
    found: list[SegmentIndex | None] = []
    for start in range(0, len(infos), READS_MAX):
        found += await asyncio.gather(*(_read(store, info, report) for info in infos[start : start + READS_MAX]))
    newest_ms = _newest_committed_ms(state)
    lost = []
    for index in found:
        if index is None:
            continue
        # Most of these were given up. But if a flusher's clock stepped back, they may have been acknowledged.
        if segment_born_ms(index.segment_id) < newest_ms.get(index.writer, 0):
            report.passed_by_segments.append(segment_name(index.segment_id))
        lost.append(index)
    return lost


async def _list_unknown(
    store: ObjectStore, cluster: str, state: State, now_ms: int, report: Report
) -> list[ObjectInfo]:
    """Objects of unknown segments that are young enough to have been committed after the state's last entry."""
    known = _known_ids(state)
    # By the machine's clock, no older segment was committed after this state.
    age_max_ms = state.limits.log.segment_commit_age_max_ms
    oldest_ms = state.clock_ms - age_max_ms
    infos = []
    after = ""
    while page := await store.list(segments_prefix(NO_PREFIX, cluster), after):
        for info in page:
            try:
                level, segment_id = parse_segment_key(info.key)
            except Invalid:
                continue  # not a segment
            born_ms = segment_born_ms(segment_id)
            if level != LEVEL or born_ms < oldest_ms or segment_id in known:
                continue
            # The machine commits no segment that is born so long after its clock.
            if born_ms > min(info.modified_ms, now_ms) + age_max_ms:
                report.future_segments.append(segment_name(segment_id))
            else:
                infos.append(info)
        after = page[-1].key
    return infos


def _known_ids(state: State) -> set[SegmentId]:
    """The ids of all committed segments; removed ones are in `commits` while they are young."""
    return {*state.segments.all_ids(), *state.commits}


def _newest_committed_ms(state: State) -> dict[str, int]:
    """The birth of each flusher's newest segment that is committed and not removed."""
    segments = state.segments
    newest_ms = [0] * len(segments.names)
    for slot in segments.by_number:
        name = segments.writers[slot]
        newest_ms[name] = max(newest_ms[name], segment_born_ms(segments.id(slot)))
    return dict(zip(segments.names, newest_ms, strict=True))


async def _read(store: ObjectStore, info: ObjectInfo, report: Report) -> SegmentIndex | None:
    async def get_range(position: int, length: int) -> bytes:
        return await store.get_range(info.key, position, length)

    try:
        index = await read_index_of(get_range, info.size_bytes)
        if (index.level, index.segment_id) != parse_segment_key(info.key):
            raise Corrupt(f"its footer names segment {index.segment_id.hex()} of level {index.level}")
    except NotFound:
        return None  # deleted since the listing; only unacknowledged segments are deleted
    except Corrupt as error:
        report.damaged_segments.append(f"{info.key}: {error}")
        return None
    return index
