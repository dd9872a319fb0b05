"""Quotas of clients and of the whole cluster, in memory, and how much of each is used here (ADR 0014).

Every announcement contains the sequence of the entry that changed quotas last. A gateway queries the quotas when it
sees a newer sequence. In a cluster without quotas it queries and measures nothing. Gateways report in their presence
how much of each quota their clients use, and so divide the quota among them.

The quotas of the whole cluster come with the presences of sequencers, each second (ADR 0059).
"""

import asyncio
import math
from typing import Protocol

import structlog

from penstock.contracts.configs.quotas import (
    CLUSTER,
    CLUSTER_ENTITY,
    FETCH_RATE,
    PRODUCE_RATE,
    REQUEST_TIME,
    Entity,
    InForce,
    client_quota,
    connection_quota,
    entity_of,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import ClusterUse, Presence, QuotaUse, newest_cluster_use
from penstock.contracts.queries.quotas import ClientQuotasQuery, ClientQuotasView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_gateway.quotas.rate_meter import RateMeter, share_of

QUERY_DEADLINE_S = 5.0
RETRY_S = 1.0
MEASURE_INTERVAL_S = 0.9  # announcements come each second, and sometimes sooner
METERS_MAX = 10_000  # about 5 MB
CLIENTS_MAX = 10_000  # clients whose quotas are cached
REPORTED_USES_MAX = 64  # the largest uses; about 5 KB in each presence

_Place = tuple[str, Entity]  # a quota's key, and the entity that it limits

log = structlog.get_logger()


class Processes(Protocol):
    """The part of the directory that a quota cache needs: the presences of other gateways, and of sequencers."""

    def live(self, role: str) -> list[Presence]: ...


class QuotaCache:
    """The client quotas in force, and their use through this gateway."""

    def __init__(self, sequencer: SequencerClient, clock: Clock, processes: Processes, instance: str) -> None:
        self._sequencer = sequencer
        self._clock = clock
        self._processes = processes
        self._instance = instance
        self._sequence = 0  # of the newest change of quotas that is applied here
        self._wanted_sequence = 0  # of the newest change that was announced
        self._changed = asyncio.Event()
        self._quotas: dict[Entity, dict[str, str]] = {}
        self._cluster = ClusterUse()
        self._cluster_quotas: dict[str, InForce] = {}  # by key
        self._by_client: dict[tuple[str, str, str], InForce | None] = {}
        self._meters: dict[_Place, RateMeter] = {}
        self._measured_s = clock.monotonic_s()
        self._others_per_s: dict[_Place, list[float]] = {}
        self._collected_s = -math.inf

    @property
    def is_empty(self) -> bool:
        """Whether no quota is set that slows clients down."""
        return not self._quotas and not self._cluster_quotas

    @property
    def storage_error(self) -> str:
        """Why no records can be stored; "" while the cluster has not reached its quota of stored bytes."""
        most, stored = self._cluster.stored_bytes_max, self._cluster.stored_bytes
        if not most or stored < most:
            return ""
        return (
            f"The quota of this cluster is {most} stored bytes, and it has {stored}. Delete records or topics, or "
            f"have the quota raised."
        )

    def record(self, sequence: int) -> None:
        """Record that the entry with this sequence changed quotas."""
        if sequence > max(self._wanted_sequence, self._sequence):
            self._wanted_sequence = sequence
            self._changed.set()

    async def run(self) -> None:
        """Query the quotas whenever they have changed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.refresh()
            if self._sequence < self._wanted_sequence:  # no sequencer answered, or only one that is behind
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def refresh(self) -> None:
        """Query the quotas now; keep the cached ones if no sequencer answers."""
        try:
            view = await self._sequencer.query(
                "client_quotas", ClientQuotasQuery(0, fresh=True), ClientQuotasView, deadline_s=QUERY_DEADLINE_S
            )
        except Unavailable as error:
            log.warning("quota_query_failed", error=str(error))
            return
        if view.altered_sequence <= self._sequence:
            return
        self._sequence = view.altered_sequence
        self._quotas = {
            entity_of([(part.kind, part.name) for part in entry.entity]): entry.values for entry in view.entries
        }
        self._by_client.clear()

    def meter(self, key: str, user: str, client_id: str) -> RateMeter | None:
        """The meter of the quota that limits this client, None without a quota. Several clients may share a meter."""
        client = (key, user, client_id)
        if client not in self._by_client:
            if len(self._by_client) >= CLIENTS_MAX:
                self._by_client.clear()
            self._by_client[client] = client_quota(self._quotas, key, user, client_id)
        return self._meter(key, self._by_client[client])

    def meters(self, key: str, user: str, client_id: str) -> dict[str, RateMeter]:
        """The meters of all quotas that limit this client, its own and that of the whole cluster, by name."""
        of_cluster = self._meter(key, self._cluster_quotas.get(key))
        found = {key: self.meter(key, user, client_id), f"{CLUSTER}_{key}": of_cluster}
        return {name: meter for name, meter in found.items() if meter is not None}

    def connection_meter(self, key: str, address: str) -> RateMeter | None:
        """The meter of connections from this address, None without a quota."""
        return self._meter(key, connection_quota(self._quotas, address))

    def _meter(self, key: str, quota: InForce | None) -> RateMeter | None:
        if quota is None:
            return None
        meter = self._meters.get((key, quota.who))
        if meter is None or meter.limit != quota.value:
            now_s = self._clock.monotonic_s()
            meter = self._meters[key, quota.who] = RateMeter(quota.value, now_s)
            if now_s - self._collected_s >= MEASURE_INTERVAL_S:
                self._collect_uses(now_s)
            self._share((key, quota.who), meter)
            while len(self._meters) > METERS_MAX:
                del self._meters[next(iter(self._meters))]
        return meter

    def reported(self) -> tuple[QuotaUse, ...]:
        """The largest uses of quotas here, for the presence; also take in the presences of other processes."""
        now_s = self._clock.monotonic_s()
        self._take_cluster_use()
        if self._meters and now_s - self._measured_s >= MEASURE_INTERVAL_S:
            self._measured_s = now_s
            self._measure(now_s)
        shared = [(place, meter) for place, meter in self._meters.items() if _is_shared(place[0]) and meter.used_per_s]
        if len(shared) > REPORTED_USES_MAX:
            shared = sorted(shared, key=lambda each: -each[1].used_per_s)[:REPORTED_USES_MAX]
        return tuple(QuotaUse(key, who, meter.used_per_s) for (key, who), meter in shared)

    def _take_cluster_use(self) -> None:
        """Take the quotas and the use of the cluster from the replica that has applied most.

        Without an announcement, the last ones stay in force.
        """
        use = newest_cluster_use(self._processes.live("sequencer"))
        if use is None:
            return
        self._cluster = use
        most = {PRODUCE_RATE: use.produced_bytes_per_s_max, FETCH_RATE: use.consumed_bytes_per_s_max}
        self._cluster_quotas = {key: InForce(CLUSTER_ENTITY, float(value)) for key, value in most.items() if value}

    def _measure(self, now_s: float) -> None:
        # One pass over the uses of all gateways: there may be thousands of meters, and as many uses.
        self._collect_uses(now_s)
        for place, meter in list(self._meters.items()):
            meter.measure(now_s)
            if meter.is_idle(now_s):
                del self._meters[place]
            else:
                self._share(place, meter)

    def _share(self, place: _Place, meter: RateMeter) -> None:
        if _is_shared(place[0]):
            meter.rate = share_of(meter.limit, self._others_per_s.get(place, ()))

    def _collect_uses(self, now_s: float) -> None:
        """Take the use per second from other gateways' presences: one number per quota and gateway."""
        self._collected_s = now_s
        self._others_per_s = {}
        for gateway in self._processes.live("gateway"):
            if gateway.instance != self._instance:
                for use in gateway.quota_use:
                    self._others_per_s.setdefault((use.key, use.who), []).append(use.per_second)


def _is_shared(key: str) -> bool:
    """Whether a quota counts over all gateways. The request time counts per gateway."""
    return key != REQUEST_TIME


class HasQuotas(Protocol):
    @property
    def quotas(self) -> QuotaCache: ...
