"""The table of segments agrees with a plain model after any additions, deaths and removals."""

from array import array
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from penstock.contracts.commands import (
    SEGMENTS_REMOVED_MAX,
    DeleteTopic,
    PerItem,
    RaiseLevel,
    Rejected,
    RemoveSegments,
)
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.levels import JANITOR_LEVEL, NAME_REUSE_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import Limits, LogLimits
from penstock_sequencer.core.state.segments import NO_SLOT, NOT_DEAD, Segments
from tests.unit.sequencer.core.core_invariants import check_invariants, check_segments
from tests.unit.sequencer.core.core_world import START_MS, World, batch

STEPS = 400


class PlainSegment(msgspec.Struct):
    """A segment of the plain model, which finds a segment by a walk over all."""

    segment_id: SegmentId
    number: int
    size_bytes: int
    extents: list[int]  # their lengths
    writer: str
    dead: tuple[int, int, int] | None = None  # (sequence, clock, number)


class Model:
    """A table and a plain list of segments, with the same changes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state: State = new_state()
        self.state.level = NAME_REUSE_LEVEL
        self.state.segments.begin_queue(1)
        self.state.segments.begin_name_reuse()
        self.known: list[PlainSegment] = []
        self.added = 0
        self.slots_max = 0

    @property
    def table(self) -> Segments:
        return self.state.segments

    def step(self) -> None:
        self.state.sequence += 1
        self.state.clock_ms += self.random.choice([0, 1, 1_000])
        kinds = [self.add, self.add, self.lose, self.lose, self.remove, self.read_again]
        self.random.choices(kinds, [4, 4, 4, 4, 1, 1])[0]()
        self.slots_max = max(self.slots_max, len(self.known))

    def add(self) -> None:
        random = self.random
        born_ms = START_MS + self.state.clock_ms - random.choice([0, 0, 0, 500, 900_000])
        identifier = new_segment_id(born_ms, random.randbytes(10))
        size_bytes, lengths = random.randint(1, 1_000), [random.randint(1, 50) for _ in range(random.randint(1, 3))]
        used = {self.table.find(each.segment_id) for each in self.known}
        smallest = next(each for each in range(len(used) + 1) if each not in used)
        writer = random.choice(["f", "", f"f-{self.added}"])
        slot = self.table.add(identifier, random.randint(0, 2), size_bytes, writer, random.choice(["z", ""]))
        assert slot == smallest
        self.table.gain(slot, len(lengths), sum(lengths))
        self.known.append(PlainSegment(identifier, self.added, size_bytes, lengths, writer))
        self.added += 1

    def lose(self) -> None:
        """Several segments lose extents in one entry, in any order, while the clock goes on."""
        living = [each for each in self.known if each.extents]
        for each in self.random.sample(living, min(len(living), self.random.randint(1, 4))):
            self.state.clock_ms += self.random.choice([0, 0, 1])
            slot = self.table.find(each.segment_id)
            gone, each.extents = each.extents[:2], each.extents[2:]
            self.table.lose_many([slot] * len(gone), gone)
            self.table.mark_dead_if_empty(slot, self.state.clock_ms, self.state.sequence)
            if not each.extents:
                each.dead = (self.state.sequence, self.state.clock_ms, each.number)

    def remove(self) -> None:
        dead = [each for each in self.known if each.dead]
        gone = self.random.sample(dead, self.random.randint(0, len(dead)))
        self.table.remove([self.table.find(each.segment_id) for each in gone])
        self.known = [each for each in self.known if each not in gone]

    def read_again(self) -> None:
        """Write the columns to a snapshot and read them, as at a restart."""
        table = self.table
        data = (bytes(table.ids), list(table.names), table.columns(), table.next_number)
        self.state.segments = Segments.of_columns(*data, level=NAME_REUSE_LEVEL)

    def check(self) -> None:
        table = self.table
        check_segments(self.state)
        assert [table.id(slot) for slot in table.by_number] == [each.segment_id for each in self.known]
        assert list(table.all_ids()) == sorted(each.segment_id for each in self.known)
        assert [table.ref(slot).writer for slot in table.by_number] == [each.writer for each in self.known]
        for each in self.known:
            slot = table.find(each.segment_id)
            assert table.find_number(each.number) == slot != NO_SLOT
            assert (table.numbers[slot], table.sizes[slot]) == (each.number, each.size_bytes)
            assert (table.live_extents[slot], table.live_bytes[slot]) == (len(each.extents), sum(each.extents))
        dead = sorted(each.dead for each in self.known if each.dead)
        ages = ((table.dead_sequences[slot], table.dead_since_ms[slot], table.numbers[slot]) for slot in table.dead)
        assert [*ages] == dead
        assert len(table.numbers) == self.slots_max, "no more slots than segments at one time"


@pytest.mark.parametrize("seed", range(12))
def test_the_table_agrees_with_a_plain_model(seed: int) -> None:
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
        model.check()
    assert model.added > model.slots_max + 50, "slots were used again"
    assert len(model.table.names) <= model.slots_max + 2, "so were the places of names"


def test_names_are_kept_below_the_level_of_their_reuse_and_removed_when_it_is_reached() -> None:
    table = Segments()
    table.begin_queue(1)
    for number in range(5):
        slot = table.add(bytes([number]) * 16, 0, 10, f"f{number}", "z")
        table.gain(slot, 1, 10)
        if number < 4:
            table.lose_many(array("I", [slot]), array("q", [10]))
            table.mark_dead_if_empty(slot, 1, 1)
            table.remove([slot])
    assert table.names == ["f0", "z", "f1", "f2", "f3", "f4"]
    table.begin_name_reuse()
    assert table.names == ["", "z", "", "", "", "f4"]
    table.add(b"x" * 16, 0, 10, "new", "z")
    assert table.names == ["new", "z", "", "", "", "f4"]


def test_an_unknown_segment_has_no_slot() -> None:
    table = Model(1).table
    assert (table.find(bytes(16)), table.find(b""), table.find_number(0), table.find_number(-1)) == (NO_SLOT,) * 4
    table.add(b"b" * 16, 0, 10, "f", "z")
    assert [table.find(each) for each in (b"a" * 16, b"b" * 16, b"c" * 16, b"b")] == [NO_SLOT, 0, NO_SLOT, NO_SLOT]
    assert [table.find_number(each) for each in (-(2**63), -1, 0, 1, 2**64 - 1)] == [NO_SLOT, NO_SLOT, 0] + [
        NO_SLOT
    ] * 2


@pytest.fixture
def world() -> Iterator[World]:
    """Three segments of the topic t, then one of u."""
    world = World()
    world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
    world.topic("t")
    world.topic("u", number=2)
    for number in (1, 1, 1, 2):
        world.produce(batch(), number=number)
    yield world


def ids(world: World) -> list[SegmentId]:
    table = world.state.segments
    return [table.id(slot) for slot in table.by_number]


def remove(world: World, *segment_ids: SegmentId) -> list[Rejection]:
    outcome = world.do(RemoveSegments(world.now_ms, list(segment_ids)))
    assert isinstance(outcome, PerItem)
    return outcome.rejections


def test_only_dead_segments_are_removed(world: World) -> None:
    first, second, third, other = ids(world)
    assert remove(world, first, other) == [Rejection.INVALID_REQUEST] * 2
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert remove(world, third, other, first) == [Rejection.NONE, Rejection.INVALID_REQUEST, Rejection.NONE]
    assert ids(world) == [second, other]


def test_a_removal_that_is_repeated_or_names_a_segment_twice_changes_nothing_more(world: World) -> None:
    first, *_ = ids(world)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert remove(world, first, first, bytes(16), b"") == [Rejection.NONE] * 4
    assert remove(world, first) == [Rejection.NONE]
    assert len(world.state.segments) == 3


def test_the_commit_of_a_removed_segment_is_answered_as_before_and_adds_nothing(world: World) -> None:
    command = world.segment_command((1, 0, [batch(5)]))
    answer = world.do(command)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert remove(world, command.segment_id) == [Rejection.NONE]
    assert world.do(command) == answer
    assert command.segment_id not in ids(world)


def test_too_many_segments_are_rejected_as_a_whole(world: World) -> None:
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    first, *_ = ids(world)
    outcome = world.do(RemoveSegments(world.now_ms, [first] * (SEGMENTS_REMOVED_MAX + 1)))
    assert isinstance(outcome, Rejected)
    assert outcome.rejection == Rejection.INVALID_REQUEST
    assert first in ids(world)


def test_below_its_level_no_segment_is_removed() -> None:
    world = World()
    world.topic()
    world.produce(batch())
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    assert isinstance(world.do(RemoveSegments(world.now_ms, ids(world))), Rejected)
    assert len(world.state.segments) == 1


def test_a_segment_in_the_slot_of_a_removed_one_has_its_own_number(world: World) -> None:
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    first, second, _, _ = ids(world)
    remove(world, second)
    remove(world, first)
    for number, slot in ((4, 0), (5, 1), (6, 4)):
        world.produce(batch(), number=2)
        assert world.state.segments.find_number(number) == slot
    columns = world.partition(2).extents
    assert list(columns.segments) == [3, 0, 1, 4]


def test_removed_segments_free_space_for_others(world: World) -> None:
    world.use_limits(Limits(log=LogLimits(segments_max=4)))
    full = world.do(world.segment_command((2, 0, [batch()])))
    assert isinstance(full, Rejected)
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    remove(world, *ids(world)[:1])
    assert world.produce(batch(), number=2)[0].rejection == Rejection.NONE


def test_dead_segments_are_in_the_order_in_which_they_died(world: World) -> None:
    first, second, third, other = ids(world)
    world.do(DeleteTopic(world.now_ms, "u", bytes(16)))
    deleted_sequence = world.state.sequence
    world.wait(5)
    world.do(world.job((1, 0, 1, 2)))
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    table = world.state.segments
    merged = ids(world)[-1]
    assert [table.id(slot) for slot in table.dead] == [other, second, first, third, merged]
    sequences = [table.dead_sequences[slot] for slot in table.dead]
    assert sequences == [deleted_sequence, deleted_sequence + 2] + [deleted_sequence + 3] * 3


def test_segments_dead_before_the_level_count_as_dead_since_the_entry_that_reached_it() -> None:
    world = World()
    world.topic("t")
    world.topic("u", number=2)
    world.produce(batch(), number=2)
    world.produce(batch())
    world.do(DeleteTopic(world.now_ms, "t", bytes(16)))
    died_ms = world.now_ms
    world.wait(5)
    world.do(DeleteTopic(world.now_ms, "u", bytes(16)))
    table = world.state.segments
    assert list(table.dead_sequences) == [0, 0]
    again = decode_state(encode_state(world.state))
    for state in (world.state, again):
        world.state = state
        world.do(RaiseLevel(world.now_ms, JANITOR_LEVEL))
        table = state.segments
        assert [table.dead_since_ms[slot] for slot in table.dead] == [died_ms, died_ms + 5]
        assert list(table.dead_sequences) == [state.sequence] * 2
        assert not list(table.dead_since_ms).count(NOT_DEAD)
    check_invariants(again)
