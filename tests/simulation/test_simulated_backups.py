"""A journal that comes back from an older backup: all sequencers halt with a clear message, and none serves again."""

import pytest

from penstock.segment.keys import (
    journal_archive_prefix,
    parse_journal_archive_key,
    parse_snapshot_key,
    snapshots_prefix,
)
from tests.testkit.sim.environment.services import CLUSTER
from tests.testkit.sim.length import SHORT
from tests.testkit.sim.world import World

LOAD_S = 3.0
SHORT_LOAD_S = 0.4
ANSWERS_S = 0.5  # then the answers of killed sequencers have come
ON_THE_WIRE_S = 0.005  # then the entries have arrived that were sent before a restore
WATCHED_S = 25.0  # longer than all waits for servers that have not caught up
SEEDS = (1, 2, 3, 5)
FAST_SEEDS = (1, 9, 12, 50)  # in these a sequencer would write, or even hide the loss, before the first request

pytestmark = pytest.mark.simulation


class Restored:
    """A world whose journal is restored under load."""

    def __init__(self, seed: int, load_s: float = LOAD_S) -> None:
        self.world = World(seed, SHORT)
        self.halts: list[str] = []
        self._stored = self._acknowledged = 0
        for process in self.world.processes:
            process.start()
        self.world.spawn(self.world.make_topic())
        assert self.world.until("the topic", lambda: self.world.topic_exists, 30.0)
        self.world.begin_work(0.1)
        self.world.run_for(load_s)
        self.backup = self.world.journal.last_sequence
        self.world.run_for(load_s)

    @property
    def archived(self) -> int:
        """The last entry in the archive."""
        keys = self.world.store.keys(journal_archive_prefix("", CLUSTER))
        return max((parse_journal_archive_key(key)[1] for key in keys), default=0)

    @property
    def stored(self) -> int:
        """The last entry in the archive or in a snapshot."""
        keys = self.world.store.keys(snapshots_prefix("", CLUSTER))
        return max(self.archived, *(parse_snapshot_key(key) for key in keys), 0)

    @property
    def acknowledged(self) -> int:
        """The batches that producers know to be stored."""
        return sum(producer.acknowledged for producer in self.world.producers)

    def has_unarchived_batches(self) -> bool:
        """Whether batches were acknowledged since the store got the newest entry that it has."""
        if self.stored != self._stored:
            self._stored, self._acknowledged = self.stored, self.acknowledged
        return self.acknowledged > self._acknowledged

    def restore_and_restart(self, sequence: int) -> None:
        """Restore the journal up to this entry, and let all sequencers begin a new life, without memory."""
        sequencers = self.world.role("sequencer")
        for process in sequencers:
            process.kill()
        self.world.run_for(ANSWERS_S)
        self.world.journal.restore(sequence)
        for process in sequencers:
            process.start()

    def watch(self) -> None:
        """Run for a while, and collect the reasons for which processes end."""
        end_s = self.world.now_s + WATCHED_S
        while self.world.now_s < end_s:
            self.world.run_for(end_s - self.world.now_s)
            self.halts += self.world.failures
            self.world.failures.clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_running_sequencers_halt_when_the_journal_goes_back(seed: int) -> None:
    restored = Restored(seed)
    with restored.world.watching():
        restored.world.journal.restore(restored.backup)
        before = restored.acknowledged
        restored.world.run_for(ON_THE_WIRE_S)
        arrived = restored.world.journal.last_sequence
        restored.watch()
        restored.world.end()
    sequencers = {process.name for process in restored.world.role("sequencer")}
    assert sequencers <= {halt.split("-")[0] + "-" + halt.split("-")[1] for halt in restored.halts}
    assert all("the sequencer halted" in halt for halt in restored.halts), restored.halts
    assert restored.acknowledged == before
    assert restored.world.journal.last_sequence == arrived


@pytest.mark.parametrize("seed", SEEDS)
def test_sequencers_that_start_halt_when_the_archive_has_more_than_the_journal(seed: int) -> None:
    restored = Restored(seed)
    with restored.world.watching():
        assert restored.world.until("the archive", lambda: restored.archived > restored.backup, 60.0)
        restored.restore_and_restart(restored.backup)
        before = restored.acknowledged
        restored.watch()
        restored.world.end()
    assert restored.halts
    assert all("is already in its archive" in halt for halt in restored.halts), restored.halts
    assert restored.acknowledged == before
    assert restored.world.journal.last_sequence == restored.backup


@pytest.mark.parametrize("seed", FAST_SEEDS)
def test_sequencers_that_start_halt_when_another_service_has_seen_more_than_the_journal_has(seed: int) -> None:
    """The backup has all that is archived, but not all that was acknowledged. No sequencer writes into the gap."""
    restored = Restored(seed, SHORT_LOAD_S)
    with restored.world.watching():
        assert restored.world.until("batches behind the archive", restored.has_unarchived_batches, 60.0)
        last = restored.stored
        restored.restore_and_restart(last)
        before = restored.acknowledged
        restored.watch()
        restored.world.end()
    assert restored.halts
    assert all("another service has seen entry" in halt for halt in restored.halts), restored.halts
    assert restored.acknowledged == before
    assert restored.world.journal.last_sequence == last
