"""All limits and waits of a sequencer, one struct for each room; a test or a simulation can pass others."""

import msgspec

from penstock_sequencer.core.state.limits import Limits
from penstock_sequencer.custodian.backlog import ArchiveLimits
from penstock_sequencer.custodian.lease import CustodyLimits
from penstock_sequencer.custodian.snapshot_schedule import SnapshotLimits
from penstock_sequencer.journal_guard.completeness import LOSS_LOOK_S
from penstock_sequencer.journal_guard.durability import DurabilityLimits
from penstock_sequencer.journal_guard.identity import MARKER_INTERVAL_S
from penstock_sequencer.replication.level_raiser import LevelLimits
from penstock_sequencer.replication.proposal_queue import ProposerLimits
from penstock_sequencer.replication.replica import ReplicaLimits
from penstock_sequencer.replication.seen_entries import SeenLimits
from penstock_sequencer.replication.stall_detector import StallLimits
from penstock_sequencer.replication.ticker import TickerLimits
from penstock_sequencer.serving.member_liveness import LivenessLimits
from penstock_sequencer.serving.request_server import RequestLimits
from penstock_sequencer.serving.table_watch import TableLimits


class StartLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica starts."""

    describe_retry_s: float = 0.2  # between two requests for the journal's end
    store_retry_s: float = 1.0  # between two searches for a snapshot
    snapshot_look_s: float = 10.0  # a snapshot that is missing this long is lost (ADR 0006)
    catch_up_look_s: float = 60.0  # of one wait; a long journal takes several


class ReplicationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the room `replication`."""

    proposer: ProposerLimits = ProposerLimits()
    replica: ReplicaLimits = ReplicaLimits()
    stalls: StallLimits = StallLimits()
    levels: LevelLimits = LevelLimits()
    ticker: TickerLimits = TickerLimits()
    seen: SeenLimits = SeenLimits()


class ServingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the room `serving`."""

    requests: RequestLimits = RequestLimits()
    liveness: LivenessLimits = LivenessLimits()
    tables: TableLimits = TableLimits()


class CustodianLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the room `custodian`."""

    custody: CustodyLimits = CustodyLimits()
    archive: ArchiveLimits = ArchiveLimits()
    snapshots: SnapshotLimits = SnapshotLimits()


class JournalGuardLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the room `journal_guard`."""

    durability: DurabilityLimits = DurabilityLimits()
    marker_interval_s: float = MARKER_INTERVAL_S  # between two checks of the marker
    loss_look_s: float = LOSS_LOOK_S  # between two checks of a journal that ends before its archive


class SequencerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one sequencer."""

    core: Limits = Limits()
    start: StartLimits = StartLimits()
    replication: ReplicationLimits = ReplicationLimits()
    serving: ServingLimits = ServingLimits()
    custodian: CustodianLimits = CustodianLimits()
    journal_guard: JournalGuardLimits = JournalGuardLimits()


SEQUENCER_LIMITS = SequencerLimits()
