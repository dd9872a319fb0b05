"""The limits of services in a run: smaller than in production, so that all timeouts end within seconds."""

import msgspec

from penstock.runtime.bus.presence import PresenceLimits
from penstock.runtime.process.host import HostLimits
from penstock_gateway.fetch.limits import FetchLimits, ReadLimits
from penstock_gateway.parts import GatewayLimits
from penstock_gateway.produce.limits import ProduceLimits
from penstock_gateway.tail.tail_index import TailLimits
from penstock_janitor.app import JanitorLimits
from penstock_janitor.deletion.sweep import SweepLimits
from penstock_janitor.service import LoopLimits
from penstock_sequencer.core.state.limits import GroupLimits, Limits, ProducerLimits, TransactionLimits
from penstock_sequencer.custodian.backlog import ArchiveLimits
from penstock_sequencer.limits import CustodianLimits, ReplicationLimits, SequencerLimits
from penstock_sequencer.replication.level_raiser import LevelLimits
from penstock_sequencer.replication.stall_detector import StallLimits

LONG_GATEWAY = GatewayLimits(
    read=ReadLimits(indexed_bytes_min=1_500),  # gateways need offset indexes to find places in long runs
    fetch=FetchLimits(located_s=0.5),
    tail=TailLimits(extent_age_s_max=0.5),  # less than half of any grace
)
# A sweep is ten tasks instead of a thousand, so janitors finish soon.
JANITOR = JanitorLimits(loops=LoopLimits(pause_max_s=3.0), sweep=SweepLimits(shard_digits=1, tasks_at_once=5))
# One principal can fill its share of these tables (`shared_tables`). Nothing in them is idle long enough to be evicted.
SMALL_TABLES = Limits(
    producers=ProducerLimits(producers_per_partition_max=16),
    transactions=TransactionLimits(transactions_max=64, transactions_pressure_min=128),
)
# Short runs wait half as long, so that the waits end while there are faults.
SHORT_GATEWAY = msgspec.structs.replace(LONG_GATEWAY, produce=ProduceLimits(sweep_interval_s=0.2))
SHORT_SEQUENCER = SequencerLimits(
    core=msgspec.structs.replace(SMALL_TABLES, groups=GroupLimits(session_timeout_min_ms=3_000)),
    replication=ReplicationLimits(
        stalls=StallLimits(
            look_interval_s=0.25
        ),  # half of a stall: most callbacks of an idle sequencer are such checks
        levels=LevelLimits(listen_s=2.5),
    ),
    custodian=CustodianLimits(archive=ArchiveLimits(interval_s=2.0)),
)
SHORT_HOST = HostLimits(presence=PresenceLimits(expire_interval_ms=400))


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of all services of a run; flushers and cachers have the production limits."""

    host: HostLimits = HostLimits()
    gateway: GatewayLimits = LONG_GATEWAY
    janitor: JanitorLimits = JANITOR
    sequencer: SequencerLimits = SequencerLimits(core=SMALL_TABLES)


LONG_LIMITS = ServiceLimits()
SHORT_LIMITS = ServiceLimits(host=SHORT_HOST, gateway=SHORT_GATEWAY, sequencer=SHORT_SEQUENCER)
