"""The work for large streams groups, and the order in which numbers of partitions are decided."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from penstock.contracts.commands import (
    OwnedTasks,
    RaiseLevel,
    Rejected,
    StreamsMembership,
    Subtopology,
    TaskIds,
    TaskOffset,
    Topology,
)
from penstock.contracts.levels import TASK_OFFSETS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.streams.progress import next_progress
from penstock_sequencer.core.groups.streams.topology import configure, topology_error
from penstock_sequencer.core.state.limits import Limits, StreamsLimits
from penstock_sequencer.core.state.streams_group import StreamsGroup, StreamsMember
from tests.unit.sequencer.core.core_streams import CHANGELOG, subtopology
from tests.unit.sequencer.core.core_world import World

SUBTOPOLOGIES = 200
TASKS = 500
PARTITIONS = {"t": 3, "u": 5}
NAMES = ("r0", "r1", "r2", "r3", "r4")


class CountedNames(list[str]):
    """Names that count how often any of them are read."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        CountedNames.reads += 1
        return super().__iter__()


def chain() -> Iterator[Subtopology]:
    """Each subtopology reads the repartition topic of the next one, so the last one decides first."""
    last = SUBTOPOLOGIES - 1
    for place in range(SUBTOPOLOGIES):
        sources, repartition = (("t",), {}) if place == last else ((), {f"r{place + 1}": 0})
        each = subtopology(f"{place:03}", *sources, repartition=repartition)
        yield msgspec.structs.replace(each, repartition_sink_topics=CountedNames([f"r{place}"] if place else []))


def test_a_long_chain_of_repartition_topics_takes_work_in_proportion_to_its_length() -> None:
    topology = Topology(0, list(chain()))
    CountedNames.reads = 0
    assert topology_error(topology) == ""
    assert CountedNames.reads <= 5 * SUBTOPOLOGIES


names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
sources = st.lists(st.sampled_from(list(PARTITIONS)), max_size=2, unique=True)
parts = st.lists(st.tuples(sources, names, names, st.sampled_from([0, 0, 0, 7])), min_size=1, max_size=6)


def decided_in_rounds(subtopologies: list[Subtopology]) -> dict[str, int]:
    """The numbers as Kafka decides them: again and again over all subtopologies, until nothing changes."""
    decided = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    before = None
    while before != decided:
        before = dict(decided)
        for each in subtopologies:
            known = [decided[topic.name] for topic in each.repartition_source_topics if topic.name in decided]
            known += [PARTITIONS[name] for name in each.source_topics]
            for name in each.repartition_sink_topics:
                if known and name not in decided:
                    decided[name] = max(known)
    return decided


@given(parts)
# The first one reads the topics of both others, which are decided in the same round.
@example([([], ["r1", "r2"], ["r0"], 0), (["t"], [], ["r1"], 0), (["u"], ["r0"], ["r2"], 0)])
def test_repartition_topics_get_the_numbers_that_kafka_decides_round_by_round(
    parts: list[tuple[list[str], list[str], list[str], int]],
) -> None:
    subtopologies = [
        subtopology(str(place), *read, sinks=tuple(sinks), repartition=dict.fromkeys(repartition, count))
        for place, (read, repartition, sinks, count) in enumerate(parts)
    ]
    topology = Topology(0, subtopologies)
    if topology_error(topology):
        return
    world = World()
    for number, (name, partitions) in enumerate(PARTITIONS.items(), 1):
        world.topic(name, partitions, number)
    decided = decided_in_rounds(subtopologies)
    read = {topic.name for each in subtopologies for topic in each.repartition_source_topics}
    assert configure(world.state, topology).counts == {name: decided[name] for name in read}


class CountedNumber(int):
    """A number of a task that counts how often any of them are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedNumber.compared += 1
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


def counted_numbers(first: int) -> list[int]:
    return [CountedNumber(number) for number in range(first, first + TASKS)]


def test_a_step_of_a_member_with_many_tasks_takes_work_in_proportion_to_their_number() -> None:
    names = (None, None, "client", "host", 60_000, 0, "p", None, [])
    member = StreamsMember(
        "m", *names, active_sequence=1, standby={"0": counted_numbers(0)}, target_standby={"0": counted_numbers(TASKS)}
    )
    group = StreamsGroup(Topology(0, []), epoch=2, assignment_epoch=2, members={"m": member})
    CountedNumber.compared = 0
    assert next_progress(group, member, None).revoking_standby == {"0": [*range(TASKS)]}
    owned = OwnedTasks([], [TaskIds("0", counted_numbers(2 * TASKS))])
    assert next_progress(group, member, owned).standby == {"0": [*range(TASKS, 2 * TASKS)]}
    assert CountedNumber.compared <= 20 * TASKS


def offsets_of(*numbers: int) -> list[TaskOffset]:
    return [TaskOffset("0", number, 10) for number in numbers]


def world_of_offsets(level: int, **limits: int) -> World:
    world = World(Limits(streams=StreamsLimits(**limits)), level=level)
    world.topic(partitions=4)
    world.topic(CHANGELOG, partitions=4, number=2)
    return world


@pytest.mark.parametrize("level", [TASK_OFFSETS_LEVEL - 1, TASK_OFFSETS_LEVEL])
def test_two_heartbeats_give_a_member_no_more_offsets_than_one_may(level: int) -> None:
    world = world_of_offsets(level, task_offsets_max=3)
    one = world.streams.client("one")
    world.streams.settle(one)
    assert isinstance(world.streams.beat(one, task_offsets=offsets_of(0, 1)), StreamsMembership)
    answer = world.streams.beat(one, task_end_offsets=offsets_of(0, 1))
    member = world.streams.member("one")
    if level < TASK_OFFSETS_LEVEL:
        assert len(member.task_offsets + member.task_end_offsets) == 4
        world.do(RaiseLevel(world.now_ms, TASK_OFFSETS_LEVEL))
        # A member that has more already may keep them.
        assert isinstance(world.streams.beat(one, client_tags=[("zone", "a")]), StreamsMembership)
        return
    assert answer == Rejected(Rejection.INVALID_REQUEST, "a member with 4 offsets of tasks")
    assert isinstance(world.streams.beat(one, task_end_offsets=offsets_of(0)), StreamsMembership)
    assert len(member.task_offsets + member.task_end_offsets) == 3


@pytest.mark.parametrize("level", [TASK_OFFSETS_LEVEL - 1, TASK_OFFSETS_LEVEL])
def test_a_target_reads_a_limited_number_of_all_offsets(level: int) -> None:
    world = world_of_offsets(level, task_offsets_read_max=2)
    one = world.streams.client("one", task_offsets=offsets_of(1, 3))
    two = world.streams.client("two", task_offsets=offsets_of(0, 2))
    world.streams.settle(one, two)
    is_limited = level >= TASK_OFFSETS_LEVEL
    assert one.active == {"0": [1, 2] if is_limited else [1, 3]}
    assert two.active == {"0": [0, 3] if is_limited else [0, 2]}
