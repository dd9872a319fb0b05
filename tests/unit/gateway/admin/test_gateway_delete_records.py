"""DeleteRecords: each partition has its own result, and its new low watermark."""

from typing import Any

import pytest

from penstock.contracts.commands import (
    LOGS_PER_COMMAND_MAX,
    DeleteRecords,
    LogOffset,
    LogsTrimmed,
    LogTrimmed,
    Outcome,
    Rejected,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.log import OffsetFound, OffsetsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.kafkawire.error_codes import ErrorCode
from tests.unit.gateway.gateway_fakes import World, new_world
from tests.unit.gateway.gateway_wire import ask

DELETE_RECORDS = 21
HIGH_WATERMARK = 90


def trimming_world(**rejections: Rejection) -> World:
    """Sequencers that move log starts to the given offsets, or reject all logs of a topic."""
    world = new_world()
    names: dict[bytes, str] = {}

    def trim(command: Any) -> Outcome:
        names.update({view.topic_id: view.name for view in world.sequencer.topics.values()})
        return LogsTrimmed([result(log) for log in command.logs], is_more=True)

    def result(log: LogOffset) -> LogTrimmed:
        rejection = rejections.get(names[log.topic_id], Rejection.NONE)
        return LogTrimmed(rejection) if rejection else LogTrimmed(rejection, log.offset)

    def ends(query: Any) -> OffsetsView:
        assert query.fresh, "the end must cover all acknowledged records"
        return OffsetsView(1, [OffsetFound(Rejection.NONE, HIGH_WATERMARK, None, 1) for _ in query.partitions])

    world.sequencer.on_command = trim
    world.sequencer.views["offsets"] = ends
    return world


def sent(world: World) -> list[list[LogOffset]]:
    """The logs of each entry."""
    return [command.logs for (command,) in world.sequencer.commands if isinstance(command, DeleteRecords)]


async def deleted(
    world: World, offsets: dict[str, list[tuple[int, int]]], version: int = 2
) -> dict[tuple[str, int], tuple[int, int]]:
    """Error and low watermark by topic and partition; `offsets` has partitions and offsets."""
    topics = [
        DeleteRecordsTopic(name, [DeleteRecordsPartition(*each) for each in partitions])
        for name, partitions in offsets.items()
    ]
    response = await ask(world, DELETE_RECORDS, version, DeleteRecordsRequest(topics, 30_000))
    return {
        (topic.name, each.partition_index): (each.error_code, each.low_watermark)
        for topic in response.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(3))
async def test_log_starts_move_to_the_offsets_or_to_the_high_watermark(version: int) -> None:
    world = trimming_world()
    view = world.sequencer.add_topic("t", 3)
    assert await deleted(world, {"t": [(2, 7), (0, -1)]}, version) == {("t", 2): (0, 7), ("t", 0): (0, 90)}
    # Never "all": a repeated or late command would delete newer records.
    assert sent(world) == [[LogOffset(view.topic_id, 2, 7), LogOffset(view.topic_id, 0, HIGH_WATERMARK)]]


async def test_unknown_and_repeated_partitions_are_rejected_and_the_others_are_trimmed() -> None:
    world = trimming_world()
    world.sequencer.add_topic("t", 2)
    results = await deleted(world, {"absent": [(0, 1)], "t": [(0, 5), (2, 5), (-1, 5), (1, 5), (1, 6)]})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results == {
        ("absent", 0): (unknown, -1),
        ("t", 0): (0, 5),
        ("t", 2): (unknown, -1),
        ("t", -1): (unknown, -1),
        ("t", 1): (ErrorCode.INVALID_REQUEST, -1),
    }


async def test_a_rejected_log_keeps_its_records_and_has_its_error() -> None:
    world = trimming_world(
        far=Rejection.OFFSET_OUT_OF_RANGE, compacted=Rejection.POLICY_VIOLATION, gone=Rejection.UNKNOWN_TOPIC
    )
    for name in ("far", "compacted", "gone", "good"):
        world.sequencer.add_topic(name)
    assert await deleted(world, {name: [(0, 5)] for name in ("far", "compacted", "gone", "good")}) == {
        ("far", 0): (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        ("compacted", 0): (ErrorCode.POLICY_VIOLATION, -1),
        ("gone", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("good", 0): (0, 5),
    }
    assert world.gateway.topics.cached("gone") is None, "the topic may have been created again, and must be looked up"


async def test_many_logs_take_several_entries_each_bounded() -> None:
    world = trimming_world()
    count = LOGS_PER_COMMAND_MAX + 1
    world.sequencer.add_topic("t", count)
    results = await deleted(world, {"t": [(number, number) for number in range(count)]})
    assert results == {("t", number): (0, number) for number in range(count)}
    assert [len(logs) for logs in sent(world)] == [LOGS_PER_COMMAND_MAX, 1]


async def test_a_log_with_an_unknown_end_is_not_trimmed() -> None:
    world = trimming_world()
    world.sequencer.add_topic("t", 3)

    def silent(query: Any) -> Any:
        raise Unavailable("no sequencer answered")

    world.sequencer.views["offsets"] = silent
    assert await deleted(world, {"t": [(0, -1), (1, 5)]}) == {
        ("t", 0): (ErrorCode.REQUEST_TIMED_OUT, -1),
        ("t", 1): (0, 5),
    }
    world.sequencer.views["offsets"] = lambda query: OffsetsView(
        1, [OffsetFound(Rejection.UNKNOWN_TOPIC, -1, None, -1)]
    )
    assert await deleted(world, {"t": [(2, -1)]}) == {("t", 2): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}


async def test_a_deletion_with_an_unknown_outcome_is_a_time_out() -> None:
    world = trimming_world()
    world.sequencer.add_topic("t")
    await world.gateway.topics.find(["t"])
    world.sequencer.is_down = True
    assert await deleted(world, {"t": [(0, 5)]}) == {("t", 0): (ErrorCode.REQUEST_TIMED_OUT, -1)}


async def test_the_rejection_of_a_command_is_the_error_of_each_log() -> None:
    world = trimming_world()
    world.sequencer.add_topic("t", 2)
    world.sequencer.on_command = lambda command: Rejected(Rejection.INVALID_REQUEST, "no")
    results = await deleted(world, {"t": [(0, 5), (1, 5)]})
    assert set(results.values()) == {(ErrorCode.INVALID_REQUEST, -1)}
