"""Tells a lost journal from a server of a cluster whose knowledge is, for a moment, out of date.

A server that was paused or has just started answers from its old state, until the other servers bring it up to date.
Seen on a real cluster: for half a second after a pause, a stream ends hundreds of entries before the last acknowledged
one. A single server has no other servers to learn from, so its answer counts at once.
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
    """How long a cluster must show a loss before it is believed."""

    # Twenty times the longest wrong answer seen. Elections take up to 9 s, but no server shows a loss meanwhile.
    proven_after_s: float = 10.0
    # Between two signs of one loss. We ask far more often, so after a longer silence the proof starts again.
    signs_apart_s_max: float = 3.0


DEFAULT_LIMITS = LossLimits()


class JournalReplaced(JournalLost):
    """Another stream is in the journal's place. No server answers that by mistake, so it needs no proof."""


class LossDetector:
    """Turns the signs of one kind of loss into `Unavailable` until they have lasted."""

    def __init__(self, is_clustered: Callable[[], bool], *, limits: LossLimits = DEFAULT_LIMITS) -> None:
        self._is_clustered = is_clustered
        self._limits = limits
        self._first_s: float | None = None
        self._last_s = 0.0

    @contextlib.contextmanager
    def observe(self) -> Iterator[None]:
        """Around one look at the journal: any result but a loss starts the proof again."""
        try:
            yield
        except JournalReplaced:
            raise
        except (JournalLost, JournalGap) as sign:
            if not self._is_proven(sign):
                raise Unavailable(f"{sign}, says a server that may not know better yet") from sign
            raise
        except PenstockError:
            self._first_s = None
            raise
        else:
            self._first_s = None

    def _is_proven(self, sign: PenstockError) -> bool:
        if not self._is_clustered():
            return True
        now_s = asyncio.get_running_loop().time()
        if self._first_s is None or now_s - self._last_s > self._limits.signs_apart_s_max:
            log.warning("journal_loss_suspected", sign=str(sign), proven_after_s=self._limits.proven_after_s)
            self._first_s = now_s
        self._last_s = now_s
        return now_s - self._first_s >= self._limits.proven_after_s
