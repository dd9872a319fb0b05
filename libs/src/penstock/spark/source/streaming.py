"""The next micro-batch of a streaming query: from the offsets in its checkpoint to the present end of the topics."""

from collections.abc import Mapping

from penstock.spark.source.config import SourceConfig
from penstock.spark.source.offsets import LogBounds, Offsets, Partition, from_json, limit_offsets, to_json
from penstock.spark.source.planning import opened_planner
from penstock.spark.source.splits import Split

Json = Mapping[str, Mapping[str, int]]


async def latest_offsets(
    config: SourceConfig, start: Json, last: Json | None, bytes_max: int | None, offsets_max: int | None
) -> dict[str, dict[str, int]]:
    """The end of the next micro-batch: the present end, limited by `last` and by about so many bytes and offsets.

    New partitions and topics begin at their first offset. Deleted ones keep their last offset.
    """
    async with opened_planner(config) as planner:
        topics = await planner.topics()
        bounds = await planner.bounds(topics)
        begin = starts_of(from_json(start), bounds)
        end = {**begin, **{key: log.end for key, log in bounds.items()}}
        for key in sorted(key for key, offset in end.items() if offset < begin[key]):
            planner.report_loss(
                f"{key[0]} [{key[1]}] ends at offset {end[key]}, before {begin[key]}: it was deleted and created again"
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
    """The splits of a micro-batch."""
    ends = from_json(end)
    async with opened_planner(config) as planner:
        topics = await planner.topics()
        bounds = await planner.bounds(topics)
        begin = from_json(start)
        for key in ends:
            begin.setdefault(key, bounds[key].start if key in bounds else 0)
        return await planner.splits(planner.wanted(topics, bounds, begin, ends))


def starts_of(start: Offsets, bounds: Mapping[Partition, LogBounds]) -> Offsets:
    """The start of a micro-batch in each partition: the end of the last one, or the first offset of a new partition."""
    return {**{key: log.start for key, log in bounds.items()}, **start}
