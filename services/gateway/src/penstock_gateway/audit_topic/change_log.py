"""Reports changes by administrators: an event in the log for each, a limited number of them, and the audit trail."""

from collections.abc import Callable

import msgspec
import structlog

from penstock_gateway.security.audit_trail import AuditEvent, AuditTrail

log = structlog.get_logger()


class ChangeLogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a gateway logs about changes: one request may have thousands."""

    lines_max: int = 100  # in one interval; the rest is counted
    interval_s: float = 10.0
    text_max: int = 300  # characters, because clients choose names


class ChangeLog:
    """The events `administrative_change` of one gateway."""

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        limits: ChangeLogLimits | None = None,
        *,
        audit: AuditTrail | None = None,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._limits = limits or ChangeLogLimits()
        self._audit = audit
        self._since_s = monotonic_s()
        self._lines = 0
        self._unlogged = 0

    def record(self, event: AuditEvent) -> None:
        """Record a change, and log it unless there were too many just now."""
        if self._audit is not None:
            self._audit.record(event)
        self._begin_interval()
        if self._lines >= self._limits.lines_max:
            self._unlogged += 1
            return
        self._lines += 1
        names = ("principal", "peer", "listener", "api", "operation", "resource", "detail", "outcome")
        log.info("administrative_change", **{name: self._shortened(getattr(event, name)) for name in names})

    def _begin_interval(self) -> None:
        now_s = self._monotonic_s()
        if now_s - self._since_s < self._limits.interval_s:
            return
        if self._unlogged:
            log.info("more_administrative_changes", more=self._unlogged, seconds=round(now_s - self._since_s))
        self._since_s, self._lines, self._unlogged = now_s, 0, 0

    def _shortened(self, text: str) -> str:
        limit = self._limits.text_max
        return text if len(text) <= limit else f"{text[:limit]}..."
