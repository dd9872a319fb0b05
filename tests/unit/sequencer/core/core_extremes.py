"""Random journals with extreme values: any command that can be decoded, from logs that end near their last offset.

Commands are made from the types of their fields. So a new command takes part by itself.
"""

import types
from enum import IntEnum
from random import Random
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchRun
from penstock.contracts.commands import (
    Command,
    CommitSegment,
    ConsumerHeartbeat,
    CreateTopic,
    RaiseLevel,
    ShareHeartbeat,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.configs.members import GROUP_CONFIGS
from penstock.contracts.entries import Entry, decode_entry, encode_entry
from penstock.contracts.ids import new_segment_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, OFFSET_MAX, Limits
from tests.unit.sequencer.core.core_strategies import EXTREMES, SUBSCRIBED_TO_T
from tests.unit.sequencer.core.core_walks import Walker
from tests.unit.sequencer.core.core_world import START_MS, topic_id

Requests = list[list[Command]]
COMMANDS = get_args(Command)
TEXTS = ["", "t", "t", "g", "g", "s", "m1", "m2", "i", "a", "consumer", "range", "uniform", "t.*", "(" * 400, "ä" * 300]
NUMBERS = [-1, 0, 0, 1, 1, 2, 3, START_MS, START_MS + 1_000, OFFSET_MAX, OFFSET_MAX + 1, *EXTREMES]
CONFIG_VALUES = ["", "-1", "0", "1", "6000", str(2**31 - 1), str(2**63 - 1), str(2**64), "9" * 400, "compact", "x"]
CONFIG_NAMES = ["retention.ms", "retention.bytes", "penstock.undelete.window.ms", "cleanup.policy", *GROUP_CONFIGS]
CREATED = [*range(1, 6)]  # numbers of the topics that are created first, one partition each
# Of the ends of their logs from OFFSET_MAX; earlier releases had no such limit, and halted a little above 2**63.
DISTANCES = [0, 0, 1, 2, 5, 2**31, 2**31 + 1, -1, -(2**52) + 3, -(2**52) + 1, -(2**52)]


def extreme_journal(seed: int, length: int, limits: Limits = DEFAULT_LIMITS) -> "ExtremeJournal":
    """A journal of `length` entries, and the state that it leads to."""
    journal = ExtremeJournal(seed, limits)
    for _ in range(length):
        journal.step()
    return journal


class ExtremeJournal:
    """A state, and the next entries for it: valid commands, commands with an extreme value, and commands of any kind.

    Each entry passes through its encoding, so that only commands are applied that a journal can hold.
    """

    def __init__(self, seed: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self.random = Random(seed)
        self.walker = Walker(seed, limits)
        self.names = list(TEXTS)
        level = self.random.choice([0, 1, 2, 3, 4, NEWEST_LEVEL, NEWEST_LEVEL, NEWEST_LEVEL])
        topics = [CreateTopic(START_MS, f"far-{each}", topic_id(90 + each), 1, {}) for each in CREATED]
        self.apply([[RaiseLevel(START_MS, level), *topics]])
        self._move_logs()

    @property
    def state(self) -> State:
        return self.walker.state

    def _move_logs(self) -> None:
        """Move the empty logs close to the last offset; so many records take years to produce."""
        for topic in self.state.topics.values():
            for partition in topic.partitions:
                end = OFFSET_MAX - self.random.choice(DISTANCES)
                partition.log_start_offset = partition.high_watermark = end

    def step(self) -> tuple[Requests, Any]:
        """Apply the next entry; return the entry, its outcomes and its effects."""
        random = self.random
        entry = [[self.command() for _ in range(random.randint(1, 2))] for _ in range(random.choice([1, 1, 2]))]
        return entry, self.apply(entry)

    def apply(self, entry: Requests) -> Any:
        decoded = decode_entry(encode_entry(Entry("id", "author", 0, b"", entry)), 2**64).requests
        return apply_entry(self.state, self.state.sequence + 1, decoded)

    def command(self) -> Command:
        random = self.random
        kind = random.random()
        if kind < 0.2:
            return self._made(random.choice(COMMANDS))
        makers = [self._heartbeat, self._segment, self._share, *[self.walker.command] * 4]
        command = random.choice(makers)()
        self.names.extend(_texts(command)[:2])
        del self.names[len(TEXTS) : -60]
        return command if kind < 0.75 else self._changed(self._changed(command))

    def _heartbeat(self) -> Command:
        """A consumer or share member that joins or stays."""
        random = self.random
        member, topics = random.choice(["m1", "m2", "m3"]), random.sample([f"far-{each}" for each in CREATED], 2)
        who = (self.walker.now_ms, random.choice(["c", "g"]), member)
        if random.random() < 0.4:
            return ShareHeartbeat(who[0], "s", member, 0, None, "client", "host", topics)
        epoch = random.choice([0, 0, 1, 2, -1])
        owned = [] if not epoch else None
        return ConsumerHeartbeat(*who, epoch, None, None, 5_000, "client", "host", topics, None, None, owned)

    def _segment(self) -> Command:
        """A segment with batches of many records for the full logs."""
        random = self.random
        batches = []
        for _ in range(random.randint(1, 3)):
            writer = random.choice([(-1, -1, -1)] * 3 + [(random.randint(1, 3), 0, 0)])
            attributes, adds = random.choice([(0, False), (0, False), (TRANSACTIONAL, True)])
            batches.append(BatchMeta(50, random.choice([1, 2, 5, 2**31 - 1]), START_MS, *writer, attributes, adds))
        run = BatchRun(topic_id(90 + random.choice(CREATED)), 0, 0, batches)
        now_ms = self.walker.now_ms
        self.walker.segments.append(
            CommitSegment(now_ms, new_segment_id(now_ms, random.randbytes(10)), 150, "f1", "a", [run])
        )
        return self.walker.segments[-1]

    def _share(self) -> Command:
        """A share member acquires records at the ends of the full logs."""
        first, last = self.random.choice([(0, -1), (OFFSET_MAX - 5, OFFSET_MAX + 5), (2**63 - 2, 2**63 - 1)])
        share = SharePartition(topic_id(90 + self.random.choice(CREATED)), 0, [], first, last, 5)
        return ShareRecords(self.walker.now_ms, "s", self.random.choice(["m1", "m2"]), [share], 10)

    def _changed(self, value: Any) -> Any:
        """The same message with one of its values replaced."""
        names = type(value).__struct_fields__
        name = self.random.choice(names)
        present = getattr(value, name)
        hint = get_type_hints(type(value))[name]
        if isinstance(present, list) and present and isinstance(present[0], msgspec.Struct):
            place = self.random.randrange(len(present))
            items = [self._changed(each) if number == place else each for number, each in enumerate(present)]
            return msgspec.structs.replace(value, **{name: items * self.random.choice([1, 1, 1, 2])})
        return msgspec.structs.replace(value, **{name: self._value(hint)})

    def _made(self, kind: type[Any]) -> Any:
        hints = get_type_hints(kind)
        return kind(*[self._value(hints[name]) for name in kind.__struct_fields__])

    def _value(self, hint: Any) -> Any:
        random, origin = self.random, get_origin(hint)
        if origin in (Union, types.UnionType):
            return self._value(random.choice(get_args(hint)))
        if hint is type(None):
            return None
        if origin is list:
            return [self._value(get_args(hint)[0]) for _ in range(random.choice([0, 1, 1, 2, 3]))]
        if origin is tuple and get_args(hint)[-1] is not Ellipsis:
            return tuple(self._value(each) for each in get_args(hint))
        if origin is tuple:
            return tuple(self._value(get_args(hint)[0]) for _ in range(random.choice([0, 1, 2])))
        if origin is dict and get_args(hint) != (str, str):  # not configurations
            key, value = get_args(hint)
            return {self._value(key): self._value(value) for _ in range(random.randint(0, 2))}
        if origin is dict:
            return {random.choice(CONFIG_NAMES): random.choice(CONFIG_VALUES) for _ in range(random.randint(0, 2))}
        if hint is bool:
            return random.random() < 0.5
        if hint is int:
            return random.choice([*NUMBERS, random.randint(-(2**63), 2**64 - 1), self.state.sequence])
        if hint is str:
            return random.choice(random.choice([self.names, self.names, CONFIG_NAMES, CONFIG_VALUES]))
        if hint is bytes:
            known = [topic_id(90 + each) for each in CREATED] + [each.segment_id for each in self.walker.segments[-5:]]
            return random.choice([*known, *known, b"", bytes(16), b"\xff" * 16, b"short", SUBSCRIBED_TO_T])
        if issubclass(hint, IntEnum):
            return random.choice(list(hint))
        assert issubclass(hint, msgspec.Struct), f"values of {hint} cannot be made"
        return self._made(hint)


def _texts(command: Command) -> list[str]:
    values = [getattr(command, name) for name in type(command).__struct_fields__]
    return [value for value in values if isinstance(value, str)]
