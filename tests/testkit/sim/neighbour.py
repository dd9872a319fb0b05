"""A second virtual cluster on the sequencer processes of a run: its clients, its true state, and its checks."""

import hashlib

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import (
    Command,
    CommitSegment,
    CreateTopic,
    Outcome,
    RaiseLevel,
    SegmentCommitted,
    TopicCreated,
)
from penstock.contracts.entries import GENESIS_HASH, Entry, decode_entry, encode_entry
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import ENTROPY_BYTES, SegmentId, new_segment_id, new_topic_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock_sequencer.core.machine import Effects, apply_entry
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import Limits
from tests.testkit.every_sender import EverySender
from tests.testkit.sim.environment.host import SimClock
from tests.testkit.sim.environment.journal import SimJournalStore
from tests.testkit.sim.environment.shared import NEIGHBOUR, SharedEnvironment
from tests.testkit.sim.environment.wire import START_MS

TOPIC = "private"
COMMITS = 60
DEADLINE_S = 300.0
COMPARED_ENTRIES = 8  # between two comparisons of the states of all replicas


class Neighbour:
    """The cluster `neighbour`. Its client commits segments one after the other, without objects behind them."""

    def __init__(self, environment: SharedEnvironment, journal: SimJournalStore, limits: Limits) -> None:
        self.state: State = new_state(limits)
        self.is_done = False
        self._environment = environment
        self._dice = environment.stream(NEIGHBOUR)
        self._digests: dict[int, bytes] = {}
        self._offsets: dict[SegmentId, int] = {}  # of acknowledged commits
        self._topic_id = new_topic_id(self._dice.randbytes(16))
        self._client = EverySender(environment.hub.connect(NEIGHBOUR), NEIGHBOUR, SimClock(environment.timeline))
        self._journal = journal
        journal.observers.append(self._observe)

    def apply(self, state: State, sequence: int, requests: list[list[Command]]) -> tuple[list[list[Outcome]], Effects]:
        """Apply an entry in a replica, and compare its state with those of the other replicas."""
        applied = apply_entry(state, sequence, requests)
        if sequence % COMPARED_ENTRIES == 0:
            digest = hashlib.blake2b(encode_state(state), digest_size=16).digest()
            if self._digests.setdefault(sequence, digest) != digest:
                self._environment.fail(f"replicas of the neighbour differ after journal entry {sequence}")
        return applied

    async def run(self) -> None:
        """Create a topic, and commit until all commits are acknowledged."""
        created = await self._command(CreateTopic(START_MS, TOPIC, self._topic_id, 1, {}))
        if not isinstance(created, TopicCreated):
            self._environment.fail(f"the neighbour's topic is not created: {created}")
        raised = Entry("operator", "operator", 0, GENESIS_HASH, [[RaiseLevel(START_MS, NEWEST_LEVEL)]])
        self._journal.inject(encode_entry(raised))  # at once, as most clusters already have the newest level
        for _ in range(COMMITS):
            await self._commit()
        view = await self._metadata()
        if [topic.name for topic in view.topics] != [TOPIC]:
            self._environment.fail(f"the neighbour sees other topics: {[topic.name for topic in view.topics]}")
        self.is_done = True

    def check(self, main: State) -> None:
        """Check the offsets of all commits, and that no cluster has anything of the other."""
        fail = self._environment.fail
        if list(self._offsets.values()) != list(range(COMMITS)):
            fail(f"the neighbour's offsets are not dense: {list(self._offsets.values())}")
        if self.state.topics.keys() != {TOPIC} or TOPIC in main.topics:
            fail(f"topics of one cluster are in the other: {list(self.state.topics)}, {list(main.topics)}")
        if self.state.topics[TOPIC].partitions[0].high_watermark != COMMITS:
            fail("the neighbour's log has other records than its client committed")

    async def _commit(self) -> None:
        now_ms = START_MS + int(self._environment.now_s * 1000)
        segment_id = new_segment_id(now_ms, self._dice.randbytes(ENTROPY_BYTES))
        runs = [BatchRun(self._topic_id, 0, 16, [BatchMeta(100, 1, now_ms, -1, -1, -1, 0)])]
        outcome = await self._command(CommitSegment(now_ms, segment_id, 200, "neighbours-flusher", "z0", runs))
        if isinstance(outcome, SegmentCommitted):
            self._offsets[segment_id] = outcome.runs[0][0].base_offset
        else:
            self._environment.fail(f"the neighbour's commit is rejected: {outcome}")

    async def _command(self, command: Command) -> Outcome:
        while True:  # a repeated command has the same outcome
            try:
                return (await self._client.command([command], deadline_s=DEADLINE_S))[0]
            except Unavailable:
                continue

    async def _metadata(self) -> MetadataView:
        query = MetadataQuery(self._client.seen_sequence, None)
        return await self._client.query("metadata", query, MetadataView, deadline_s=DEADLINE_S)

    def _observe(self, sequence: int, data: bytes) -> None:
        apply_entry(self.state, sequence, decode_entry(data, NEWEST_LEVEL).requests)
