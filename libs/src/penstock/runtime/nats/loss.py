"""Tells a journal that is lost from servers of a cluster that, for a moment, do not know better.

A server that was paused or has just started answers from what it had before, until it hears of what was decided
meanwhile: seen on a real cluster is a stream that ends hundreds of entries before what was acknowledged, for half a
second after a pause. A single server knows no other truth than its own, so what it says counts at once.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import structlog

from penstock.contracts.errors import PenstockError, Unavailable
from penstock.runtime.journal import JournalGap, JournalLost

# Twenty times the longest wrong answer seen; elections take up to 9 s, but meanwhile nobody claims a loss.
LOSS_PROVEN_AFTER_S = 10.0
SIGNS_APART_S_MAX = 3.0  # between two signs of one loss; we ask far more often, so a longer silence is ours

log = structlog.get_logger()


class JournalReplaced(JournalLost):
    """Another stream is in the journal's place. No server makes that up, so it needs no proof."""


class LossWatch:
    """Turns the signs of one kind of loss into `Unavailable` until they have lasted."""

    def __init__(self, is_clustered: Callable[[], bool]) -> None:
        self._is_clustered = is_clustered
        self._first_s: float | None = None
        self._last_s = 0.0

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Around one look at the journal: whatever it brings but a loss begins the wait anew."""
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
        if self._first_s is None or now_s - self._last_s > SIGNS_APART_S_MAX:
            log.warning("journal_loss_suspected", sign=str(sign), proven_after_s=LOSS_PROVEN_AFTER_S)
            self._first_s = now_s
        self._last_s = now_s
        return now_s - self._first_s >= LOSS_PROVEN_AFTER_S
