"""What a streaming query reads next: from offsets in its checkpoint to offsets that are there now."""

from collections.abc import Mapping

from penstock.spark.source.config import SourceConfig
from penstock.spark.source.offsets import LogBounds, Offsets, Partition, from_json, limit_offsets, to_json
from penstock.spark.source.planning import opened_planner
from penstock.spark.source.splits import Split

Json = Mapping[str, Mapping[str, int]]


async def latest_offsets(
    config: SourceConfig, start: Json, last: Json | None, bytes_max: int | None, offsets_max: int | None
) -> dict[str, dict[str, int]]:
    """Where the next micro-batch ends: all that is there, up to `last`, and about so many bytes and offsets.

    Partitions and topics that are new begin at their first offset. Those that are gone stay where they were.
    """
    async with opened_planner(config) as planner:
        topics = await planner.topics()
        bounds = await planner.bounds(topics)
        begin = starts_of(from_json(start), bounds)
        end = {**begin, **{key: held.end for key, held in bounds.items()}}
        for key in sorted(key for key, offset in end.items() if offset < begin[key]):
            planner.report_loss(
                f"{key[0]} [{key[1]}] ends at offset {end[key]}, before {begin[key]}: it was deleted and made again"
            )
        if last is not None:
            known = from_json(last)
            end = {key: min(offset, max(begin[key], known.get(key, begin[key]))) for key, offset in end.items()}
        if offsets_max is not None:
            end = limit_offsets(begin, end, offsets_max)
        if bytes_max is not None:
            end |= await planner.limited(planner.wanted(topics, bounds, begin, end), bytes_max)
        return to_json(end)


async def stream_splits(config: SourceConfig, start: Json, end: Json) -> list[Split]:
    """The tasks' shares of a micro-batch."""
    ends = from_json(end)
    async with opened_planner(config) as planner:
        topics = await planner.topics()
        bounds = await planner.bounds(topics)
        begin = from_json(start)
        for key in ends:
            begin.setdefault(key, bounds[key].start if key in bounds else 0)
        return await planner.splits(planner.wanted(topics, bounds, begin, ends))


def starts_of(start: Offsets, bounds: Mapping[Partition, LogBounds]) -> Offsets:
    """Where a micro-batch begins in each partition: where the last one ended, a new one at its first offset."""
    return {**{key: held.start for key, held in bounds.items()}, **start}
