"""The clusters that had one name, one after the other: the allowed changes of their records, and of their data."""

from collections.abc import Callable, Sequence

from penstock.clusters.record import ClusterRecord, ClusterState
from penstock.contracts.errors import Invalid
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.segment.keys import cluster_prefix, parse_segment_key
from penstock_sequencer.core.state.segments import NO_SLOT
from tests.testkit.sim.environment.journal import SimJournalStore
from tests.testkit.sim.stage import Stage
from tests.testkit.sim.tenancy.life import Life
from tests.testkit.sim.tenancy.operator import Operator, Verb
from tests.testkit.sim.tenancy.services import CLEANUP

MS_PER_S = 1000
RETURNABLE = (ClusterState.ACTIVE, ClusterState.DELETED)  # the states of a cluster that lives, or may come back
STARTED_BY = {
    (None, ClusterState.ACTIVE): Verb.CREATE,
    (ClusterState.GONE, ClusterState.ACTIVE): Verb.CREATE,
    (ClusterState.ACTIVE, ClusterState.DELETED): Verb.DELETE,
    (ClusterState.DELETED, ClusterState.ACTIVE): Verb.UNDELETE,
}
BY_JANITORS = (
    (ClusterState.DELETED, ClusterState.EMPTYING),
    (ClusterState.EMPTYING, ClusterState.EMPTYING),
    (ClusterState.EMPTYING, ClusterState.GONE),
)


class History:
    """All clusters that had one name, one after the other."""

    def __init__(
        self, stage: Stage, cluster: str, journal: SimJournalStore, operator: Operator, new_life: Callable[[int], Life]
    ) -> None:
        """`new_life` makes the life with a number."""
        self.cluster = cluster
        self.operator = operator
        self.record: ClusterRecord | None = None
        self.lives: list[Life] = []
        self._stage = stage
        self._journal = journal
        self._new_life = new_life
        self._deleted_s = 0.0  # when the store took the deletion
        self._emptied_s = 0.0  # when it took the record that nothing is left
        journal.exists = False
        journal.on_made, journal.on_lost = self._journal_made, self._journal_lost

    @property
    def life(self) -> Life:
        """The newest life."""
        return self.lives[-1]

    @property
    def state(self) -> ClusterState | None:
        """The state of the record; None before the first one."""
        return self.record.state if self.record is not None else None

    @property
    def is_active(self) -> bool:
        """Whether the cluster lives."""
        return self.state == ClusterState.ACTIVE

    @property
    def is_empty(self) -> bool:
        """Whether neither objects nor a stream are left."""
        return not self._journal.exists and not self._keys()

    def changed(self, record: ClusterRecord) -> None:
        """Take a record at the moment when the store takes it."""
        before, self.record = self.state, record
        step = (before, record.state)
        self._stage.record(f"cluster {self.cluster} {before} > {record.state}")
        if step not in BY_JANITORS and STARTED_BY.get(step) != self.operator.verb:
            self._fail(f"went from {before} to {record.state} while the operator does {self.operator.verb.value}")
        elif record.state == ClusterState.DELETED:
            self._deleted_s = self._stage.now_s
        elif step == (ClusterState.DELETED, ClusterState.EMPTYING):
            self._check_window(record)
            self._stage.infrastructure.call_soon(self.life.end_clients)
        elif record.state == ClusterState.EMPTYING:
            self._emptied_s = self._stage.now_s
        elif record.state == ClusterState.GONE:
            self._check_end()
        elif before in (None, ClusterState.GONE):
            if not self.is_empty:
                self._fail(f"was created with {self._keys()}, and a stream: {self._journal.exists}")
            self.lives.append(self._new_life(len(self.lives)))

    def check_deletion(self, name: str, keys: Sequence[str]) -> None:
        """Check a deletion of objects at the moment of its effect."""
        if self.state not in RETURNABLE:
            return
        prefix = cluster_prefix("", self.cluster)
        for key in keys:
            if key.startswith(prefix) and self._is_live(key):
                self._fail(f"is {self.state}, and {name} deleted its live segment {key}")

    def _is_live(self, key: str) -> bool:
        try:
            level, segment_id = parse_segment_key(key)
        except Invalid:
            return False
        segments = self.life.oracle.state.segments
        slot = segments.find(segment_id)
        return slot != NO_SLOT and slot not in segments.dead and segments.ref(slot).level == level

    def _check_window(self, record: ClusterRecord) -> None:
        window_s = (record.undelete_until_ms - record.deleted_ms) / MS_PER_S
        passed_s = self._stage.now_s - self._deleted_s
        if passed_s < window_s:
            self._fail(f"is emptied {passed_s:.3f} s after its deletion, the window is {window_s:g} s")

    def _check_end(self) -> None:
        if not self.is_empty:
            self._fail(f"is gone, and left {self._keys()}, and a stream: {self._journal.exists}")
        rested_s = self._stage.now_s - self._emptied_s
        if rested_s * MS_PER_S < CLEANUP.rest_ms:
            self._fail(f"is gone {rested_s:.3f} s after its last object")

    def _journal_made(self) -> None:
        self._journal.observers.clear()
        if self.state not in RETURNABLE:
            return  # by a process that missed the deletion: the cleanup deletes the stream again
        if self.life.has_journal:
            self._fail("has a second journal")
        self.life.has_journal = True
        self._journal.observers.append(self.life.oracle.observe)

    def _journal_lost(self) -> None:
        if self.state != ClusterState.EMPTYING:
            self._fail(f"is {self.state}, and its journal is deleted")

    def _keys(self) -> list[str]:
        return self._stage.store.keys(cluster_prefix("", self.cluster))

    def _fail(self, text: str) -> None:
        self._stage.fail(f"the cluster {self.cluster} {text}")

    @property
    def level(self) -> int:
        """The level of the cluster."""
        return self.life.oracle.state.level if self.lives else NEWEST_LEVEL
