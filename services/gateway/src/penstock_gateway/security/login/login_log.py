"""The log lines and the metrics of logins. Clients decide how many fail, so a flood writes a few lines only."""

from collections.abc import Callable

import msgspec
import structlog

from penstock.contracts.acls import ResourceType, user_principal
from penstock_gateway.kafka.client import Client
from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.audit_trail import AuditEvent, AuditKind, AuditTrail

OTHER_MECHANISM = "other"
UNKNOWN = "unknown"
TOKEN = ResourceType.DELEGATION_TOKEN.name

log = structlog.get_logger()


class LoginLogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a gateway logs about failed logins."""

    lines_max: int = 20  # in one interval; the rest is counted
    interval_s: float = 10.0
    text_max: int = 128  # characters of a user name or a mechanism, which may have 32 KiB


class LoginLog:
    """The events `login_succeeded` and `login_failed` of one gateway; never with a secret."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        monotonic_s: Callable[[], float],
        limits: LoginLogLimits | None = None,
        *,
        audit: AuditTrail | None = None,
        is_user: Callable[[str, str], bool] = lambda name, mechanism: False,
    ) -> None:
        """`is_user`: whether a name in a login by a mechanism is that of a user.

        Other names may be mistyped passwords, and do not enter the audit trail.
        """
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._limits = limits or LoginLogLimits()
        self._audit = audit
        self._is_user = is_user
        self._since_s = monotonic_s()
        self._lines = 0
        self._unlogged = 0

    def succeeded(self, client: Client, mechanism: str) -> None:
        """Record a login; the client has the user, and the id of the delegation token if it used one."""
        self._metrics.logins.labels(mechanism, "succeeded").inc()
        token = f"{TOKEN}:{client.token_id}" if client.token_id else ""
        log.debug("login_succeeded", **self._facts(client, client.user, mechanism), **({"by": token} if token else {}))
        self._record(AuditKind.LOGIN_SUCCEEDED, client, user_principal(client.user), mechanism, resource=token)

    def failed(self, client: Client, user: str, mechanism: str, reason: str) -> None:
        """Record a failed login; `mechanism` is "" for one that is not accepted."""
        self._metrics.logins.labels(mechanism or OTHER_MECHANISM, "failed").inc()
        principal = user_principal(user) if user and self._is_user(user, mechanism) else UNKNOWN
        self._record(AuditKind.LOGIN_FAILED, client, principal, mechanism or OTHER_MECHANISM, reason)
        self.flush()
        if self._lines >= self._limits.lines_max:
            self._unlogged += 1
            return
        self._lines += 1
        log.warning("login_failed", **self._facts(client, user, mechanism or OTHER_MECHANISM), reason=reason)

    def undecided(self, mechanism: str) -> None:
        """Record a login that this gateway could not decide; the client tries again."""
        self._metrics.logins.labels(mechanism, "undecided").inc()

    def flush(self) -> None:
        """Begin a new interval if the current one is over, and log how many failures it did not log."""
        now_s = self._monotonic_s()
        if now_s - self._since_s < self._limits.interval_s:
            return
        if self._unlogged:
            log.warning("logins_failed", more=self._unlogged, seconds=round(now_s - self._since_s))
        self._since_s, self._lines, self._unlogged = now_s, 0, 0

    def _record(
        self,
        kind: AuditKind,
        client: Client,
        principal: str,
        mechanism: str,
        reason: str = "",
        resource: str = "",
    ) -> None:
        if self._audit is not None:
            self._audit.record(
                AuditEvent(
                    kind=kind,
                    principal=principal,
                    peer=client.host,
                    listener=client.listener,
                    mechanism=mechanism,
                    reason=reason,
                    resource=resource,
                )
            )

    def _facts(self, client: Client, user: str, mechanism: str) -> dict[str, str]:
        principal = f"User:{user[: self._limits.text_max]}" if user else UNKNOWN
        return {"principal": principal, "peer": client.host, "listener": client.listener, "mechanism": mechanism}
