"""The client quotas that this gateway knows, and who has used how much of them (ADR 0014).

Every announcement tells which entry changed quotas last, so a gateway asks for them when it hears of another one than
it knows; where none was ever set, nothing is asked, and nothing is measured. Gateways tell each other with their
presence what is used of each quota, and share it by that.
"""

import asyncio
import math
from typing import Protocol

import structlog

from penstock.contracts.configs.quotas import REQUEST_TIME, Entity, InForce, client_quota, connection_quota, entity_of
from penstock.contracts.errors import Unavailable
from penstock.contracts.messages import Presence, QuotaUse
from penstock.contracts.queries.quotas import ClientQuotasQuery, ClientQuotasView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock_gateway.quotas.rate_meter import RateMeter, share_of

QUERY_DEADLINE_S = 5.0
RETRY_S = 1.0
MEASURE_INTERVAL_S = 0.9  # announcements come each second, and sometimes sooner
METERS_MAX = 10_000  # about 5 MB
KNOWN_MAX = 10_000  # clients whose quotas are remembered
USES_TOLD_MAX = 64  # the largest; about 5 KB in each announcement

_Place = tuple[str, Entity]  # a quota's key, and whose it is

log = structlog.get_logger()


class Gateways(Protocol):
    """The part of the directory that is needed: what other gateways say."""

    def live(self, role: str) -> list[Presence]: ...


class QuotaCache:
    """Client quotas: which of them hold, and how they are used here."""

    def __init__(self, sequencer: SequencerClient, clock: Clock, gateways: Gateways, instance: str) -> None:
        self._sequencer = sequencer
        self._clock = clock
        self._gateways = gateways
        self._instance = instance
        self._sequence = 0  # of the entry that changed what is known here last
        self._wanted = 0  # of the one that was heard of
        self._changed = asyncio.Event()
        self._quotas: dict[Entity, dict[str, str]] = {}
        self._known: dict[tuple[str, str, str], InForce | None] = {}
        self._meters: dict[_Place, RateMeter] = {}
        self._measured_s = clock.monotonic_s()
        self._others: dict[_Place, list[float]] = {}
        self._heard_s = -math.inf

    @property
    def is_empty(self) -> bool:
        """Whether nobody is held to anything."""
        return not self._quotas

    def record(self, sequence: int) -> None:
        """Somebody says that this entry changed quotas last."""
        if sequence > max(self._wanted, self._sequence):
            self._wanted = sequence
            self._changed.set()

    async def run(self) -> None:
        """Ask for quotas whenever they have changed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.refresh()
            if self._sequence < self._wanted:  # nobody answered, or nobody who knew
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def refresh(self) -> None:
        """Ask for quotas now; what is known holds on if nobody answers."""
        try:
            view = await self._sequencer.query(
                "client_quotas", ClientQuotasQuery(0, fresh=True), ClientQuotasView, deadline_s=QUERY_DEADLINE_S
            )
        except Unavailable as error:
            log.warning("quotas_not_known", error=str(error))
            return
        if view.altered_sequence <= self._sequence:
            return
        self._sequence = view.altered_sequence
        self._quotas = {
            entity_of([(part.kind, part.name) for part in entry.entity]): entry.values for entry in view.entries
        }
        self._known.clear()

    def meter(self, key: str, user: str, client_id: str) -> RateMeter | None:
        """What the client shares with others of this quota, None without one."""
        place = (key, user, client_id)
        if place not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[place] = client_quota(self._quotas, key, user, client_id)
        return self._meter(key, self._known[place])

    def connection_meter(self, key: str, address: str) -> RateMeter | None:
        """What the address may open, None without a quota."""
        return self._meter(key, connection_quota(self._quotas, address))

    def _meter(self, key: str, quota: InForce | None) -> RateMeter | None:
        if quota is None:
            return None
        meter = self._meters.get((key, quota.who))
        if meter is None or meter.limit != quota.value:
            now_s = self._clock.monotonic_s()
            meter = self._meters[key, quota.who] = RateMeter(quota.value, now_s)
            if now_s - self._heard_s >= MEASURE_INTERVAL_S:
                self._hear(now_s)
            self._share((key, quota.who), meter)
            while len(self._meters) > METERS_MAX:
                del self._meters[next(iter(self._meters))]
        return meter

    def reported(self) -> tuple[QuotaUse, ...]:
        """What is used here, the most of it, for the other gateways; with that, look how much they use."""
        now_s = self._clock.monotonic_s()
        if self._meters and now_s - self._measured_s >= MEASURE_INTERVAL_S:
            self._measured_s = now_s
            self._measure(now_s)
        shared = [(place, meter) for place, meter in self._meters.items() if _is_shared(place[0]) and meter.used_per_s]
        if len(shared) > USES_TOLD_MAX:
            shared = sorted(shared, key=lambda each: -each[1].used_per_s)[:USES_TOLD_MAX]
        return tuple(QuotaUse(key, who, meter.used_per_s) for (key, who), meter in shared)

    def _measure(self, now_s: float) -> None:
        # Others' uses are gone through once: there may be thousands of meters, and as many uses.
        self._hear(now_s)
        for place, meter in list(self._meters.items()):
            meter.measure(now_s)
            if meter.is_idle(now_s):
                del self._meters[place]
            else:
                self._share(place, meter)

    def _share(self, place: _Place, meter: RateMeter) -> None:
        if _is_shared(place[0]):
            meter.rate = share_of(meter.limit, self._others.get(place, ()))

    def _hear(self, now_s: float) -> None:
        """What other gateways say that they use a second: one number for each that uses the quota."""
        self._heard_s = now_s
        self._others = {}
        for gateway in self._gateways.live("gateway"):
            if gateway.instance != self._instance:
                for use in gateway.quota_use:
                    self._others.setdefault((use.key, use.who), []).append(use.per_second)


def _is_shared(key: str) -> bool:
    """Each gateway's time is its own; all else is counted over all of them."""
    return key != REQUEST_TIME


class HasQuotas(Protocol):
    @property
    def quotas(self) -> QuotaCache: ...
