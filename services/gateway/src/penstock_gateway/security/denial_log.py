"""Reports denied operations: one event for each resource, a limited number of them, and a counter of all."""

from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts.acls import AclOperation, ResourceType
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.audit_trail import AuditEvent, AuditKind, AuditTrail

log = structlog.get_logger()


class DenialLogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a gateway logs about denials, because clients decide how many there are."""

    lines_max: int = 50  # in one interval; the rest is counted
    interval_s: float = 10.0
    name_length_max: int = 300  # characters of a resource's name or a principal: clients choose both


class Denial(msgspec.Struct, frozen=True):
    """One operation that bindings do not allow."""

    principal: str
    address: str
    api: str
    operation: AclOperation
    resource_type: ResourceType
    name: str
    enforced: bool  # False: the authorizer is in shadow mode, and the operation was allowed
    listener: str = ""


class DenialLog:
    """The events `access_denied` of one gateway. A client that tries again and again gets one line in an interval."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        monotonic_s: Callable[[], float],
        limits: DenialLogLimits | None = None,
        *,
        audit: AuditTrail | None = None,
    ) -> None:
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._limits = limits or DenialLogLimits()
        self._audit = audit
        self._since_s = monotonic_s()
        self._logged: set[Denial] = set()
        self._unlogged = 0

    def record(self, denial: Denial) -> None:
        """Count a denial, and log it unless it was just logged, or there were too many just now."""
        labels = (denial.api, denial.operation.name, denial.resource_type.name, str(denial.enforced).lower())
        self._metrics.access_denied.labels(*labels).inc()
        self._begin_interval()
        # Only short texts are kept, because clients may send names of many KiB.
        denial = msgspec.structs.replace(
            denial, principal=self._shortened(denial.principal), name=self._shortened(denial.name)
        )
        if denial in self._logged:
            return
        if self._audit is not None:
            self._audit.record(_event(denial))
        if len(self._logged) >= self._limits.lines_max:
            self._unlogged += 1
            return
        self._logged.add(denial)
        log.warning(
            "access_denied",
            principal=denial.principal,
            address=denial.address,
            api=denial.api,
            operation=denial.operation.name,
            resource=f"{denial.resource_type.name}:{denial.name}",
            enforced=denial.enforced,
        )

    def _begin_interval(self) -> None:
        now_s = self._monotonic_s()
        if now_s - self._since_s < self._limits.interval_s:
            return
        if self._unlogged:
            log.warning("more_access_denied", more=self._unlogged, seconds=round(now_s - self._since_s))
        self._since_s, self._unlogged = now_s, 0
        self._logged.clear()

    def _shortened(self, text: str) -> str:
        limit = self._limits.name_length_max
        return text if len(text) <= limit else f"{text[:limit]}..."


def _event(denial: Denial) -> AuditEvent:
    return AuditEvent(
        kind=AuditKind.ACCESS_DENIED,
        principal=denial.principal,
        peer=denial.address,
        listener=denial.listener,
        api=denial.api,
        operation=denial.operation.name,
        resource=f"{denial.resource_type.name}:{denial.name}",
        outcome="denied" if denial.enforced else "allowed",
    )
