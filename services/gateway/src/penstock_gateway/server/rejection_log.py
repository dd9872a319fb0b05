"""Logs rejected connections: client text is cut, and a flood of rejections writes a few lines only."""

from collections.abc import Callable

import structlog

from penstock_gateway.server.limits import RejectionLogLimits

log = structlog.get_logger()


def shortened(text: str, length_max: int) -> str:
    """The text, or its beginning and its length: a client id may have 32 KiB."""
    return text if len(text) <= length_max else f"{text[:length_max]}... ({len(text)} characters)"


class RejectionLog:
    """The lines `connection_refused` of one gateway; `connections_refused` counts those without a line of their own."""

    def __init__(self, monotonic_s: Callable[[], float], limits: RejectionLogLimits) -> None:
        self._monotonic_s = monotonic_s
        self._limits = limits
        self._since_s = monotonic_s()
        self._lines = 0
        self._unlogged = 0

    def record(self, reason: str, *, peer: str, client_id: str, **facts: str) -> None:
        """Log one rejected connection, with more facts that are known of it, unless there were many just now."""
        self.flush()
        if self._lines >= self._limits.lines_max:
            self._unlogged += 1
            return
        self._lines += 1
        limits = self._limits
        log.warning(
            "connection_refused",
            peer=peer,
            client_id=shortened(client_id, limits.client_id_max),
            reason=shortened(reason, limits.reason_max),
            **facts,
        )

    def flush(self) -> None:
        """Begin a new interval if the current one is over, and log how many rejections it did not log."""
        now_s = self._monotonic_s()
        if now_s - self._since_s < self._limits.interval_s:
            return
        if self._unlogged:
            log.warning("connections_refused", more=self._unlogged, seconds=round(now_s - self._since_s))
        self._since_s, self._lines, self._unlogged = now_s, 0, 0
