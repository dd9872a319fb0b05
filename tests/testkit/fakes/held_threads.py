"""Threads of an event loop whose work waits until a test lets it go on."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

TIMEOUT_S = 60.0


class HeldThreads(ThreadPoolExecutor):
    """Counts the work that was handed over and has not ended: `open` now, `open_max` at most so far."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.open = 0
        self.open_max = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self._count(1)
        return super().submit(self._held, fn, *args, **kwargs)

    def _held(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            assert self.may_go_on.wait(TIMEOUT_S), "the test never let the work go on"
            return fn(*args, **kwargs)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self.open += change
            self.open_max = max(self.open_max, self.open)
