"""One replica: it tails the journal, checks every entry, applies it to the pure machine, and wakes waiting tasks.

There is no leader. All replicas apply the same entries in the same order, so all have the same state. A replica halts
with an explanation if the journal is damaged, incomplete, made again, or built on another past. It must never serve a
state that the other replicas do not have.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts import codec, subjects
from penstock.contracts.commands import HOUSEKEEPING, Command, Outcome, Tick
from penstock.contracts.entries import Entry, JournalMoved, decode_entry, is_of_later_release
from penstock.contracts.errors import Corrupt, Fenced, Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.messages import Advanced
from penstock.runtime.bus.bus import Bus
from penstock.runtime.clock import Clock
from penstock.runtime.journal import Journal, JournalEntry, JournalGap, JournalInfo, JournalLost
from penstock_sequencer.core.machine import Effects, apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.halt import Halted, halted_at
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.wait_queue import WaitQueue
from penstock_sequencer.storage.snapshot_format import Snapshot, UnknownVersion

CHECK_BYTES = 6  # of the running hash in the metrics; a float holds this many exactly
_APPLIED = ""

log = structlog.get_logger()

# Applies one entry: state, sequence, requests -> the outcomes of each request, and the effects.
Apply = Callable[[State, int, list[list[Command]]], tuple[list[list[Outcome]], Effects]]


class LeftBehind(Fenced):
    """The journal was purged beyond this replica's place, for example during a long pause: end, and start again."""


class Outrun(Fenced):
    """The journal was purged beyond the snapshot before the first read: start from a newer snapshot.

    `halted` is the error to raise if there is no newer snapshot.
    """

    def __init__(self, halted: Halted) -> None:
        super().__init__(str(halted))
        self.halted = halted


class ReplicaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica follows the journal."""

    slice_s: float = 0.005  # time to apply without a pause for other tasks; the last entry may exceed it
    describe_retry_s: float = 0.2
    applied_times_max: int = 2_048  # entries whose time is remembered: far more than come between two looks at members
    # A server of a cluster may not know the journal's end for a moment: some tenths of a second, when measured.
    loss_proven_after_s: float = 10.0


REPLICA_LIMITS = ReplicaLimits()


class Replica:
    """The cluster's state as far as the journal is applied; `run` applies further entries."""

    def __init__(
        self,
        *,
        journal: Journal,
        bus: Bus,
        cluster: str,
        proposer: Proposer,
        chain: HashChain,
        clock: Clock,
        metrics: SequencerMetrics,
        known_level: int = NEWEST_LEVEL,
        apply: Apply = apply_entry,
        limits: ReplicaLimits = REPLICA_LIMITS,
        core_limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.state: State = new_state(core_limits)
        self.worked_sequence = 0  # of the last entry with more than housekeeping that this replica has applied
        # Author of entries -> when its last one was applied. `LevelRaiser` removes the silent ones.
        self.authors: dict[str, float] = {}
        self._known_level = known_level
        self._core_limits = core_limits
        self._journal = journal
        self._bus = bus
        self._subject = subjects.advanced(cluster)
        self._proposer = proposer
        self._chain = chain
        self._clock = clock
        self._metrics = metrics
        self._apply_entry = apply
        self._limits = limits
        self._announcements: list[Advanced] = []
        self._applied_s: deque[float] = deque(maxlen=limits.applied_times_max)  # of the newest entries, in their order
        self._applied = WaitQueue()
        self._groups = WaitQueue()
        self._started_after = 0  # the entry of the snapshot at the start, 0 without a snapshot
        self._is_in_place = True  # whether the journal is known to hold the past of the state

    @property
    def applied_sequence(self) -> int:
        """The journal sequence that the state reflects."""
        return self._chain.sequence

    def applied_s(self, sequence: int) -> float | None:
        """When this replica applied the entry, monotonic; None if that was long ago, or before its start."""
        place = sequence - self.applied_sequence - 1
        return self._applied_s[place] if -len(self._applied_s) <= place < 0 else None

    def start_from(self, snapshot: Snapshot) -> None:
        """Use the snapshot's state, before `run`, or after it ended with `Outrun`."""
        assert self.applied_sequence == self._started_after, "entries were applied already"
        self.state = snapshot.state
        self.state.limits = self._core_limits
        self._chain.restore(snapshot.state.sequence, snapshot.hashes)
        self._started_after = self.worked_sequence = snapshot.state.sequence
        self._is_in_place = False
        self._proposer.level = snapshot.state.level

    def snapshot(self, cluster: str, hashes_max: int) -> Snapshot:
        """The applied state itself, not a copy; it changes with the next entry."""
        return Snapshot(cluster, self._chain.newest_hashes(hashes_max), self.state)

    async def run(self) -> None:
        """Apply the journal from the current place, for ever; `Halted` if that is impossible.

        `LeftBehind` if entries were purged before this replica applied them, `Outrun` if it has applied nothing so far.
        """
        try:
            after = self._chain.sequence if self._is_in_place else await self._find_place()
            await self._follow(after)
        except (Corrupt, JournalLost) as error:
            halted = halted_at(self._chain.sequence, error, self._started_after)
            if isinstance(error, JournalGap) and self._chain.sequence == self._started_after:
                raise Outrun(halted) from error
            self._metrics.halted.set(1)
            raise halted from error

    async def _follow(self, after: int) -> None:
        try:
            async for group in self._journal.tail(after):
                await self._apply_group(group)
        except JournalGap as error:
            sequence = self._chain.sequence
            if sequence == self._started_after or (await self._describe()).first_sequence <= sequence + 1:
                raise
            raise LeftBehind(
                f"the sequencer was left behind after journal entry {sequence}: {error}, because other sequencers "
                f"purged them. It starts again from the newest snapshot"
            ) from error

    async def _find_place(self) -> int:
        """The entry to read after: one before the snapshot's last if the journal has that, to compare the two.

        `JournalLost` if the journal ends before the snapshot.
        """
        sequence = self._chain.sequence
        since_s = self._clock.monotonic_s()
        while (info := await self._describe()).last_sequence < sequence:
            if info.replicas == 1 or self._clock.monotonic_s() - since_s >= self._limits.loss_proven_after_s:
                raise JournalLost(f"the journal ends with entry {info.last_sequence}")
            await asyncio.sleep(self._limits.describe_retry_s)
        if info.first_sequence <= sequence:
            return sequence - 1
        self._is_in_place = True
        self._applied.wake_all()
        return sequence

    async def _describe(self) -> JournalInfo:
        while True:
            try:
                return await self._journal.describe()
            except Unavailable as error:
                log.warning("journal_not_described", error=str(error))
                await asyncio.sleep(self._limits.describe_retry_s)

    async def until_applied(self, sequence: int, timeout_s: float) -> None:
        """Return when the state includes this journal sequence; `Unavailable` after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._chain.sequence < sequence or not self._is_in_place:
                    await self._applied.wait(_APPLIED)
        except TimeoutError as error:
            raise Unavailable(
                f"journal entry {sequence} was not applied within {timeout_s:g} s, only entry {self._chain.sequence}"
            ) from error

    async def until_group_changes(self, group_id: str) -> None:
        """Return when a member that waits in the group may have an answer, or when `release_groups` is called."""
        await self._groups.wait(group_id)

    def release_groups(self) -> None:
        """Wake all tasks that wait for a group."""
        self._groups.wake_all()

    async def _apply_group(self, group: list[JournalEntry]) -> None:
        """Apply entries in slices, so that other tasks can run."""
        pause_s = self._clock.monotonic_s() + self._limits.slice_s
        for item in group:
            if self._is_in_place:
                self._apply(item)
            else:
                self._check_place(item)
            if self._clock.monotonic_s() >= pause_s:
                await self._publish()
                await asyncio.sleep(0)
                pause_s = self._clock.monotonic_s() + self._limits.slice_s
        await self._publish()

    def _check_place(self, item: JournalEntry) -> None:
        """Compare the first entry that is read with the snapshot's last, which is applied already."""
        if item.sequence != self._chain.sequence or not self._chain.ends_with(item.data):
            raise Corrupt(f"the journal's entry {item.sequence} differs from the one in the snapshot")
        self._is_in_place = True

    def _apply(self, item: JournalEntry) -> None:
        started_s = self._clock.monotonic_s()
        entry = self._checked(item)
        outcomes, effects = self._apply_entry(self.state, item.sequence, entry.requests)
        self._chain.advance(item.data)
        self._applied_s.append(started_s)
        if entry.author == self._proposer.author:
            self._proposer.settle(entry.entry_id, item.sequence, outcomes)
            state = self.state
            self._announcements.append(
                Advanced(
                    item.sequence,
                    effects.partitions,
                    effects.topics,
                    state.level,
                    state.quotas_altered_sequence,
                    state.security_altered_sequence,
                    state.tokens_altered_sequence,
                    state.metrics_altered_sequence,
                    len(state.dead_letters),
                )
            )
        self._record(entry, effects)
        self.authors[entry.author] = started_s
        self._metrics.apply_seconds.observe(self._clock.monotonic_s() - started_s)

    def _checked(self, item: JournalEntry) -> Entry:
        if item.sequence != self._chain.sequence + 1:
            raise Corrupt(f"entry {item.sequence} came instead of entry {self._chain.sequence + 1}")
        try:
            entry = decode_entry(item.data, self._known_level)
        except JournalMoved:
            raise
        except Corrupt as error:
            kind = UnknownVersion if is_of_later_release(item.data, error) else Corrupt
            raise kind(f"entry {item.sequence}: {error}") from error
        if not self._chain.check(entry):
            log.warning("entry_unchecked", sequence=item.sequence, author=entry.author, built_on=entry.author_sequence)
        return entry

    def _record(self, entry: Entry, effects: Effects) -> None:
        self._metrics.entries.inc()
        if any(type(command) not in HOUSEKEEPING for request in entry.requests for command in request):
            self.worked_sequence = self._chain.sequence
        for request in entry.requests:
            self._metrics.commands.inc(len(request))
            if request and type(request[0]) is Tick:
                self._proposer.record_tick(self.state.clock_ms)
        for group_id in effects.groups:
            self._groups.wake(group_id)
        if effects.share_locks_ended:
            self._metrics.share_locks_ended.inc(effects.share_locks_ended)

    async def _publish(self) -> None:
        """Wake tasks that wait for the sequence, and announce the effects of this replica's own entries, in order.

        There is one announcement per entry. One that fits no message leaves a gap, and receivers query instead.
        """
        self._proposer.level = self.state.level
        self._metrics.level.set(self.state.level)
        self._metrics.transactional_ids.set(len(self.state.transactions))
        self._metrics.ongoing_transactions.set(len(self.state.ongoing))
        self._metrics.share_groups.set(len(self.state.share_groups))
        self._metrics.share_records.set(self.state.share_record_count)
        self._metrics.applied_sequence.set(self._chain.sequence)
        self._metrics.chain_check.set(int.from_bytes(self._chain.hash[:CHECK_BYTES]))
        self._applied.wake_all()
        announcements, self._announcements = self._announcements, []
        for announcement in announcements:
            data = codec.encode(announcement)
            if len(data) <= self._bus.message_bytes_max:
                await self._bus.publish(self._subject, data)
            else:
                self._metrics.unannounced.inc()
                log.warning("entry_not_announced", sequence=announcement.sequence, size_bytes=len(data))
