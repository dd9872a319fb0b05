"""Detects a lost journal, and separates it from a server whose state is out of date for a moment.

After a pause or a start, a server answers from its old state until the other servers update it. Measured on a real
cluster: for half a second after a pause, a stream ends hundreds of entries too early. A single server has no other
servers to learn from, so its answer counts at once.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import msgspec
import structlog

from penstock.contracts.errors import PenstockError, Unavailable
from penstock.runtime.journal import JournalGap, JournalLost

log = structlog.get_logger()


class LossLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a cluster must report a loss before the loss counts as real."""

    # Twenty times the longest wrong answer measured. Elections take up to 9 s, but no server reports a loss then.
    proven_after_s: float = 10.0
    # Between two reports of one loss. Requests are far more frequent, so after a longer gap the proof restarts.
    report_gap_s_max: float = 3.0


DEFAULT_LIMITS = LossLimits()


class JournalReplaced(JournalLost):
    """Another stream is in the journal's place. No server reports this by mistake, so it needs no proof."""


class LossDetector:
    """Turns reports of one kind of loss into `Unavailable` until the loss is proven."""

    def __init__(self, is_clustered: Callable[[], bool], *, limits: LossLimits = DEFAULT_LIMITS) -> None:
        self._is_clustered = is_clustered
        self._limits = limits
        self._first_s: float | None = None
        self._last_s = 0.0

    @contextlib.contextmanager
    def observe(self) -> Iterator[None]:
        """Wrap one check of the journal: any result other than a loss restarts the proof."""
        try:
            yield
        except JournalReplaced:
            raise
        except (JournalLost, JournalGap) as report:
            if not self._is_proven(report):
                raise Unavailable(f"{report} (the state of this nats server may be out of date)") from report
            raise
        except PenstockError:
            self._first_s = None
            raise
        else:
            self._first_s = None

    def _is_proven(self, report: PenstockError) -> bool:
        if not self._is_clustered():
            return True
        now_s = asyncio.get_running_loop().time()
        if self._first_s is None or now_s - self._last_s > self._limits.report_gap_s_max:
            log.warning("journal_loss_suspected", report=str(report), proven_after_s=self._limits.proven_after_s)
            self._first_s = now_s
        self._last_s = now_s
        return now_s - self._first_s >= self._limits.proven_after_s
