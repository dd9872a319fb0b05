"""A journal with JetStream's guarantees and its faults: lost acknowledgements, late appends, stalls, slow tails."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.journal import JournalEntry, JournalInfo, JournalLost
from tests.testkit.fakes.answers import within
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.sim.environment.wire import Wire

ANSWER_TIMEOUT_S = 1.0  # as in the real journal, for appends and for queries
DUPLICATE_WINDOW_S = 120.0
RETRY_S = 0.05
REPLAY_ENTRIES_MAX = 16  # in one group: simulated journals are short, and reading one should take a while
SILENCE_S_MAX = 2.0  # afterwards the real tail misses its consumer's heartbeats and makes a new consumer

IN_A_SERVER = -1  # instead of the generation of a connection, which does not matter any more

Observer = Callable[[int, bytes], None]


@dataclass
class JournalFaults:
    """The faults of appends and tails, as shares of all."""

    lost_share: float = 0.0  # never stored
    unacknowledged_share: float = 0.0  # stored, and the answer is lost
    late_share: float = 0.0  # stored only after the appender's timeout
    late_s_max: float = 0.0
    stuck_tail_share: float = 0.0  # of notices of an entry; the reader learns of it with the next notice, or later
    stuck_tail_s_max: float = 0.0
    replay_s: float = 0.0  # per entry, for a reader that is behind


class Reach:
    """The connection of one process to the journal's server, without faults."""

    def is_whole(self) -> bool:
        """Whether messages pass now."""
        return True

    def generation(self) -> int:
        """A number that changes when the connection breaks."""
        return 0


class SimJournalStore(MemoryJournalStore):
    """The stream in the simulated servers."""

    def __init__(self, wire: Wire, created: str = "2026-01-01T00:00:00Z") -> None:
        super().__init__(created)
        self.wire = wire
        self.faults = JournalFaults()
        self.observers: list[Observer] = []
        self.readers: dict[Consumer, None] = {}
        self.others: list[SimJournalStore] = []  # in the same servers
        self.power = 0  # a number that changes when the power is lost
        self.is_full = False  # the disks of the servers are full
        self.on_made: Callable[[], None] = lambda: None
        self.on_lost: Callable[[], None] = lambda: None
        self._ids_by_time: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def happens(self, share: float) -> bool:
        """Whether a fault with this share happens now, at random."""
        return share > 0 and self.wire.stream.random() < share

    def lose_power(self) -> None:
        """Lose all appends that are not stored. Each stored entry was synced before any process learned of it."""
        self.power += 1
        for other in self.others:
            other.lose_power()

    def set_available(self, available: bool) -> None:
        """Let the servers answer, or not."""
        super().set_available(available)
        for other in self.others:
            other.set_available(available)

    def restore(self, last_sequence: int) -> None:
        """Come back from a backup that ends with this entry; the stream keeps its identity."""
        self.power += 1
        self._ids_by_time.clear()
        self.cut_after(last_sequence)

    def make_again(self, created: str = "2026-02-02T00:00:00Z") -> None:
        self._ids_by_time.clear()
        self.on_made()
        super().make_again(created)

    def lose(self) -> None:
        self.on_lost()
        super().lose()

    def store_entry(self, entry_id: str, data: bytes) -> int:
        now_s = self.wire.loop.time()
        while self._ids_by_time and next(iter(self._ids_by_time.values()))[0] < now_s - DUPLICATE_WINDOW_S:
            self._ids_by_time.popitem(last=False)
        if entry_id in self._ids_by_time:
            return self._ids_by_time[entry_id][1]
        sequence = self.last_sequence + 1
        for observe in self.observers:
            observe(sequence, data)
        stored = super().store_entry(f"{sequence}", data)
        self._ids_by_time[entry_id] = (now_s, stored)
        return stored

    def notify(self) -> None:
        super().notify()
        for reader in list(self.readers):
            reader.push()


class OtherJournalStore(SimJournalStore):
    """Another stream in the servers of the first one, whose faults it has."""

    def __init__(self, wire: Wire, first: SimJournalStore) -> None:
        self._first = first
        super().__init__(wire)
        first.others.append(self)

    @property
    def faults(self) -> JournalFaults:
        """Those of the first stream."""
        return self._first.faults

    @faults.setter
    def faults(self, faults: JournalFaults) -> None:
        """Keep those of the first stream."""

    @property
    def is_full(self) -> bool:
        """Whether the disks of the servers are full."""
        return self._first.is_full

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        """Keep the value of the first stream."""


class SimJournal(MemoryJournal):
    """One process' handle on the stream."""

    def __init__(self, store: SimJournalStore, name: str = "", reach: Reach | None = None) -> None:
        super().__init__(store)
        self._stream = store
        self._name = name or f"handle-{id(self)}"
        self._reach = reach or Reach()

    async def create(self) -> None:
        """Create the stream; does nothing if there is one."""
        await self._round_trip(self._make)

    def _make(self) -> None:
        if not self._stream.exists:
            self._stream.make_again(f"{self._stream.wire.loop.time()} s after the beginning")

    async def delete(self) -> None:
        """Delete the stream; does nothing if there is none."""
        await self._round_trip(self._lose)

    def _lose(self) -> None:
        if self._stream.exists:
            self._stream.lose()

    async def describe(self) -> JournalInfo:
        await self._round_trip()
        return self._look()

    async def last_sequence(self) -> int:
        sequence = await self._round_trip()
        self._look()
        return sequence

    async def append(self, entry_id: str, data: bytes) -> int:
        if len(data) > self.entry_bytes_max:
            raise Invalid(f"journal entry of {len(data)} bytes is over the limit of {self.entry_bytes_max}")
        answer: asyncio.Future[int | Exception] = asyncio.get_running_loop().create_future()
        if self._reach.is_whole():
            late_s = 0.0
            if self._stream.happens(self._stream.faults.late_share):
                late_s = ANSWER_TIMEOUT_S + self._stream.wire.stream.uniform(0, self._stream.faults.late_s_max)
            if late_s:  # a server delays this append, but not later ones
                self._stream.wire.later(late_s, self._arrive, IN_A_SERVER, self._stream.power, entry_id, data, answer)
            else:
                generation = self._reach.generation()
                power = self._stream.power
                self._stream.wire.carry(("append", self._name), self._arrive, generation, power, entry_id, data, answer)
        try:
            outcome = await within(ANSWER_TIMEOUT_S, answer)
        except TimeoutError as error:
            raise Unavailable("no acknowledgement came in time") from error
        if isinstance(outcome, Exception):
            raise outcome
        self._last_sequence = max(self._last_sequence, outcome)
        return outcome

    def _arrive(
        self, generation: int, power: int, entry_id: str, data: bytes, answer: "asyncio.Future[int | Exception]"
    ) -> None:
        stream = self._stream
        if power != stream.power:
            return
        if generation not in (IN_A_SERVER, self._reach.generation()) or not stream.is_available:
            return
        if stream.happens(stream.faults.lost_share):
            return
        outcome: int | Exception
        if stream.is_full:
            outcome = Unavailable("insufficient storage resources available")
        elif stream.exists:
            try:
                outcome = stream.append(entry_id, data)
            except Unavailable as error:
                outcome = error
        else:
            outcome = JournalLost("the journal is gone")
        if not stream.happens(stream.faults.unacknowledged_share):
            stream.wire.carry(("acknowledge", self._name), self._receive_answer, generation, answer, outcome)

    def _receive_answer(
        self, generation: int, answer: "asyncio.Future[int | Exception]", outcome: int | Exception
    ) -> None:
        if generation == self._reach.generation() and self._reach.is_whole() and not answer.done():
            answer.set_result(outcome)

    async def _round_trip(self, at_server: Callable[[], None] = lambda: None) -> int:
        """The last sequence when the server got the query; waits for the answer, or raises `Unavailable`."""
        answer: asyncio.Future[int | Exception] = asyncio.get_running_loop().create_future()
        generation = self._reach.generation()

        def arrive() -> None:
            stream = self._stream
            if generation == self._reach.generation() and stream.is_available:
                at_server()
                stream.wire.carry(
                    ("acknowledge", self._name), self._receive_answer, generation, answer, stream.last_sequence
                )

        if self._reach.is_whole():
            self._stream.wire.carry(("append", self._name), arrive)
        try:
            outcome = await within(ANSWER_TIMEOUT_S, answer)
        except TimeoutError as error:
            raise Unavailable("the journal does not answer") from error
        assert isinstance(outcome, int)
        return outcome

    async def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        expected = after + 1
        consumer = Consumer(self._stream, self._name, self._reach)
        self._stream.readers[consumer] = None
        try:
            while True:
                try:
                    await self._round_trip()
                    consumer.pushed_sequence = self._look().last_sequence
                    generation = self._reach.generation()
                    while generation == self._reach.generation():
                        group = [entry for entry in self._take(expected) if entry.sequence <= consumer.pushed_sequence]
                        if group:
                            group = group[:REPLAY_ENTRIES_MAX]
                            expected = group[-1].sequence + 1
                            yield group
                            if expected <= consumer.pushed_sequence and self._stream.faults.replay_s:
                                await asyncio.sleep(len(group) * self._stream.faults.replay_s)
                        elif not await consumer.until_pushed():
                            break
                except Unavailable:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._stream.readers.pop(consumer, None)


class Consumer:
    """The consumer of one tail, to which the stream's servers push notices; a process may have several."""

    def __init__(self, stream: SimJournalStore, name: str, reach: Reach) -> None:
        self.pushed_sequence = 0  # the last sequence that was pushed
        self._stream = stream
        self._lane = ("push", name)
        self._reach = reach
        self._pushed: asyncio.Future[None] | None = None  # the tail waits for this

    def push(self) -> None:
        """Send a notice of the newest entry."""
        stream = self._stream
        late_s = 0.0
        if stream.happens(stream.faults.stuck_tail_share):
            late_s = stream.wire.stream.uniform(0, stream.faults.stuck_tail_s_max)
        stream.wire.carry(self._lane, self._receive, self._reach.generation(), stream.last_sequence, late_s=late_s)

    def _receive(self, generation: int, last_sequence: int) -> None:
        if generation == self._reach.generation() and self._reach.is_whole():
            self.pushed_sequence = max(self.pushed_sequence, last_sequence)
            if self._pushed is not None and not self._pushed.done():
                self._pushed.set_result(None)

    async def until_pushed(self) -> bool:
        """Wait for a notice; False after a silence, when the tail checks its consumer."""
        self._pushed = asyncio.get_running_loop().create_future()
        try:
            await within(SILENCE_S_MAX, self._pushed)
        except TimeoutError:
            return False
        return True
