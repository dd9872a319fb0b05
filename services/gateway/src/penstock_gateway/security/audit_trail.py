"""The audit trail of one gateway: events of logins, denials and changes, queued for the topic `__penstock_audit`.

A request only appends an event here, and never waits. Clients decide how many events there are. So each kind has a
rate, and the queue has an end. Events beyond them are lost, and the next event of their kind has their number.
"""

import asyncio
import datetime
import enum
from collections import deque

import msgspec

from penstock.runtime.clock import Clock
from penstock_gateway.metrics import GatewayMetrics

WRITTEN, SUPPRESSED, DROPPED = "written", "suppressed", "dropped"


class AuditLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many events a gateway records, and how it writes them."""

    events_per_s_max: int = 200  # of one kind; the rest is counted
    unwritten_max: int = 10_000  # about 10 MB: minutes of an outage of all flushers
    text_max: int = 300  # characters of a text, because clients choose names
    linger_s: float = 0.2  # events that come meanwhile share a batch
    events_per_write_max: int = 1_000
    write_timeout_s: float = 10.0
    retry_s: float = 1.0


class NewAuditTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The topic as a gateway makes it. Later its configurations are those of the cluster's administrators."""

    partitions: int = 1
    retention_ms: int = 30 * 24 * 3_600_000


class AuditKind(enum.StrEnum):
    """The kinds of events; each has its own rate, so that a flood of one hides no other."""

    LOGIN_SUCCEEDED = "login_succeeded"
    LOGIN_FAILED = "login_failed"
    ACCESS_DENIED = "access_denied"
    CHANGED = "changed"


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of one record as JSON, without the fields that are empty; docs/operating/security.md explains them.

    No field may have a secret, nor a text that a client may have meant as one.
    """

    time: datetime.datetime | None = None  # this and the next three: from the trail
    gateway: str = ""
    number: int = 0
    suppressed: int = 0
    kind: AuditKind
    principal: str
    peer: str
    listener: str = ""
    mechanism: str = ""
    reason: str = ""
    api: str = ""
    operation: str = ""
    resource: str = ""
    detail: str = ""
    outcome: str = ""


class _Rate:
    """The events of one kind in the current second, and those that were lost since the last recorded one."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.events = 0
        self.lost = 0


class AuditTrail:
    """The events of one gateway that are not written yet, in their order."""

    def __init__(
        self, *, gateway: str, clock: Clock, metrics: GatewayMetrics, limits: AuditLimits | None = None
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._metrics = metrics
        self.limits = limits or AuditLimits()
        for kind in AuditKind:
            metrics.audit_events.labels(kind, DROPPED)  # from zero on, so that an alert sees the first one
        self._rates = {kind: _Rate(clock.monotonic_s()) for kind in AuditKind}
        self._queue: deque[AuditEvent] = deque()
        self._unwritten = 0  # in the queue, or taken
        self._number = 0
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def record(self, event: AuditEvent) -> None:
        """Queue an event, or count it as lost. Never waits."""
        rate = self._rates[event.kind]
        now_s = self._clock.monotonic_s()
        if now_s - rate.began_s >= 1:
            rate.began_s, rate.events = now_s, 0
        if rate.events >= self.limits.events_per_s_max:
            self._lose(event.kind, rate, SUPPRESSED)
            return
        if self._unwritten >= self.limits.unwritten_max:
            self._lose(event.kind, rate, DROPPED)
            return
        rate.events += 1
        self._number += 1
        self._unwritten += 1
        self._queue.append(self._completed(event, rate.lost))
        rate.lost = 0
        self._filled.set()
        self._empty.clear()

    def take(self) -> list[AuditEvent]:
        """Remove the oldest events, at most as many as one write may have. They stay unwritten."""
        count = min(len(self._queue), self.limits.events_per_write_max)
        taken = [self._queue.popleft() for _ in range(count)]
        if not self._queue:
            self._filled.clear()
        return taken

    def record_written(self, events: list[AuditEvent]) -> None:
        """Record that taken events are in the topic."""
        for event in events:
            self._metrics.audit_events.labels(event.kind, WRITTEN).inc()
        self._unwritten -= len(events)
        if not self._unwritten:
            self._empty.set()

    async def until_filled(self) -> None:
        """Wait for an event to take."""
        await self._filled.wait()

    async def until_written(self) -> None:
        """Wait until all events are in the topic."""
        await self._empty.wait()

    def _completed(self, event: AuditEvent, lost: int) -> AuditEvent:
        cut = {name: self._shortened(getattr(event, name)) for name in ("principal", "reason", "resource", "detail")}
        time = datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000, datetime.UTC)
        return msgspec.structs.replace(
            event, time=time, gateway=self._gateway, number=self._number, suppressed=lost, **cut
        )

    def _lose(self, kind: AuditKind, rate: _Rate, how: str) -> None:
        rate.lost += 1
        self._metrics.audit_events.labels(kind, how).inc()

    def _shortened(self, text: str) -> str:
        limit = self.limits.text_max
        return text if len(text) <= limit else f"{text[:limit]}..."
