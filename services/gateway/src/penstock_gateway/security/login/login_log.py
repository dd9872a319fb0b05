"""The log lines and the metrics of logins. Clients decide how many fail, so a flood writes a few lines only."""

from collections.abc import Callable

import msgspec
import structlog

from penstock_gateway.kafka.client import Client
from penstock_gateway.metrics import GatewayMetrics

OTHER_MECHANISM = "other"

log = structlog.get_logger()


class LoginLogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a gateway logs about failed logins."""

    lines_max: int = 20  # in one interval; the rest is counted
    interval_s: float = 10.0
    text_max: int = 128  # characters of a user name or a mechanism, which may have 32 KiB


class LoginLog:
    """The events `login_succeeded` and `login_failed` of one gateway; never with a secret."""

    def __init__(
        self, metrics: GatewayMetrics, monotonic_s: Callable[[], float], limits: LoginLogLimits | None = None
    ) -> None:
        self._metrics = metrics
        self._monotonic_s = monotonic_s
        self._limits = limits or LoginLogLimits()
        self._since_s = monotonic_s()
        self._lines = 0
        self._unlogged = 0

    def succeeded(self, client: Client, user: str, mechanism: str) -> None:
        """Record a login."""
        self._metrics.logins.labels(mechanism, "succeeded").inc()
        log.debug("login_succeeded", **self._facts(client, user, mechanism))

    def failed(self, client: Client, user: str, mechanism: str, reason: str) -> None:
        """Record a failed login; `mechanism` is "" for one that is not accepted."""
        self._metrics.logins.labels(mechanism or OTHER_MECHANISM, "failed").inc()
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

    def _facts(self, client: Client, user: str, mechanism: str) -> dict[str, str]:
        principal = f"User:{user[: self._limits.text_max]}" if user else "unknown"
        return {"principal": principal, "peer": client.host, "listener": client.listener, "mechanism": mechanism}
