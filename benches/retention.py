"""The cost of removed data for the state machine: the slowest command while a large topic expires or is deleted.

The bench measures CPU time: by wall time, the slowest of a thousand commands is one that other processes interrupted.
"""

import gc
import time
from collections.abc import Callable, Iterator

import msgspec

from benches.micro import NOW_MS
from benches.report import Result
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import (
    TO_HIGH_WATERMARK,
    AlterConfigs,
    Command,
    CommitSegment,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    DropExtents,
    ExpireLogs,
    ExtentsDropped,
    LogOffset,
    LogRef,
    LogsTrimmed,
    Outcome,
    RaiseLevel,
    Rejected,
    Tick,
)
from penstock.contracts.ids import NO_TOPIC_ID, TopicId, new_segment_id
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.queries.janitor import RetentionQuery
from penstock.runtime.process.garbage import LargeStatePolicy
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS

OLD, BUSY = b"o" * 16, b"b" * 16  # the topic whose data is removed, and the topic with new writes
BUSY_PARTITIONS = 100
RETENTION_MS = 60_000
WINDOW_MS = 1_000  # of a deleted topic
SLOWEST_MS = 100  # the budget of a commit behind a slow command, and so also of that command
LARGE_TOPIC = 10_000  # partitions
EXTENTS_EACH = 100  # in each partition of the large topic


class Costs(msgspec.Struct):
    """The costs of the commands of one measurement."""

    commands: int = 0
    slowest_s: float = 0.0
    slowest_commit_s: float = 0.0
    extents_max: int = 0  # removed by one command
    seconds: float = 0.0


class Measured:
    """A state machine whose commands are timed and whose removed extents are counted."""

    def __init__(self, partitions: int, commits: int, runs_per_partition: int) -> None:
        """Make a topic with `commits` times `runs_per_partition` extents in each partition."""
        LargeStatePolicy().start()
        self.state: State = new_state()
        self.segments = 0
        self.partitions = partitions
        self._apply(RaiseLevel(NOW_MS, JANITOR_LEVEL))
        self._apply(CreateTopic(NOW_MS, "old", OLD, partitions, {}))
        self._apply(CreateTopic(NOW_MS, "busy", BUSY, BUSY_PARTITIONS, {}))
        for _ in range(commits):
            self._apply(self.commit(OLD, partitions, runs_per_partition))
        gc.collect()
        gc.freeze()

    def commit(self, topic_id: TopicId, partitions: int, runs_per_partition: int = 1) -> CommitSegment:
        """A commit of one segment, with an extent for each run."""
        self.segments += 1
        meta = BatchMeta(1000, 10, NOW_MS, -1, -1, -1, 0)
        count = partitions * runs_per_partition
        runs = [BatchRun(topic_id, each // runs_per_partition, 64 + each * 1000, [meta]) for each in range(count)]
        segment_id = new_segment_id(NOW_MS, self.segments.to_bytes(10, "big"))
        return CommitSegment(NOW_MS, segment_id, 64 + count * 1000, "flusher-1", "z1", runs)

    def until_done(self, next_command: Callable[[Outcome | None], Command | None]) -> Costs:
        """Time commands until there is no next one; a commit follows each of them."""
        costs, outcome = Costs(), None
        while (command := next_command(outcome)) is not None:
            before = self.state.extent_count
            started_s = time.thread_time()
            outcome = self._apply(command)
            seconds = time.thread_time() - started_s
            costs.commands += 1
            costs.seconds += seconds
            costs.slowest_s = max(costs.slowest_s, seconds)
            costs.extents_max = max(costs.extents_max, before - self.state.extent_count)
            commit = self.commit(BUSY, BUSY_PARTITIONS)
            started_s = time.thread_time()
            self._apply(commit)
            costs.slowest_commit_s = max(costs.slowest_commit_s, time.thread_time() - started_s)
        return costs

    def left(self) -> int:
        """How many extents the old topic still has."""
        return self.state.extent_count - sum(len(each.extents) for each in self.state.topics["busy"].partitions)

    def _apply(self, command: Command) -> Outcome:
        ((outcome,),), _ = apply_entry(self.state, self.state.sequence + 1, [[command]])
        assert not isinstance(outcome, Rejected), outcome
        return outcome


def machine() -> Iterator[Result]:
    """In states of 1,000,000 extents, with commits between the commands."""
    for name, partitions, commits, runs in (("one log", 1, 1_000, 1_000), ("1,000 logs", 1_000, 1_000, 1)):
        yield from _results(f"1,000,000 extents of {name} expire", _expiry(Measured(partitions, commits, runs)))
    yield from _results("1,000,000 extents of one log are deleted", _deletion_of_records(Measured(1, 1_000, 1_000)))
    world = Measured(LARGE_TOPIC, EXTENTS_EACH, 1)
    seconds = min(_query_s(world) for _ in range(5))
    yield Result("retention", "query for the overdue extents of 10,000 partitions", seconds * 1000, "ms", 20)
    name = "a topic of 10,000 partitions, 100 extents each,"
    yield from _results(f"{name} is deleted", _deletion_of_topic(world, window_ms=0))
    yield from _results(
        f"{name} is deleted after its window", _deletion_of_topic(Measured(LARGE_TOPIC, EXTENTS_EACH, 1), WINDOW_MS)
    )


def _query_s(world: Measured) -> float:
    started_s = time.thread_time()
    view = queries.retention(world.state, RetentionQuery(0, NOW_MS))
    seconds = time.thread_time() - started_s
    assert not view.logs, "an extent is overdue already"
    return seconds


def _expiry(world: Measured) -> Costs:
    configs = [ConfigChange("retention.ms", ConfigOperation.SET, str(RETENTION_MS))]
    logs = [LogRef(OLD, number) for number in range(world.partitions)]
    opening: list[Command] = [AlterConfigs(NOW_MS, "old", configs), Tick(NOW_MS + RETENTION_MS + 1)]

    def next_command(outcome: Outcome | None) -> Command | None:
        if opening:
            return opening.pop(0)
        is_done = isinstance(outcome, LogsTrimmed) and not outcome.is_more
        return None if is_done else ExpireLogs(NOW_MS + RETENTION_MS + 1, logs)

    return _checked(world, world.until_done(next_command))


def _deletion_of_records(world: Measured) -> Costs:
    opening: list[Command] = [DeleteRecords(NOW_MS, [LogOffset(OLD, 0, TO_HIGH_WATERMARK)])]
    return _checked(world, world.until_done(lambda outcome: opening.pop() if opening else _next_step(outcome)))


def _deletion_of_topic(world: Measured, window_ms: int) -> Costs:
    window = ConfigChange("penstock.undelete.window.ms", ConfigOperation.SET, str(window_ms))
    opening: list[Command] = [AlterConfigs(NOW_MS, "old", [window]), DeleteTopic(NOW_MS, "old", NO_TOPIC_ID)]
    opening += [Tick(NOW_MS + window_ms)]
    return _checked(world, world.until_done(lambda outcome: opening.pop(0) if opening else _next_step(outcome)))


def _next_step(outcome: Outcome | None) -> Command | None:
    is_done = isinstance(outcome, ExtentsDropped) and not outcome.is_more
    return None if is_done else DropExtents(NOW_MS + WINDOW_MS)


def _checked(world: Measured, costs: Costs) -> Costs:
    assert world.left() == 0, f"{world.left()} extents are left"
    return costs


def _results(name: str, costs: Costs) -> Iterator[Result]:
    yield Result("retention", f"{name}: slowest command", costs.slowest_s * 1000, "ms", SLOWEST_MS)
    yield Result("retention", "  slowest commit meanwhile", costs.slowest_commit_s * 1000, "ms", SLOWEST_MS)
    limit = DEFAULT_LIMITS.log.extents_dropped_per_command_max
    yield Result("retention", "  most extents removed by one command", costs.extents_max, "extents", limit)
    yield Result("retention", f"  all {costs.commands} commands together", costs.seconds, "s")
