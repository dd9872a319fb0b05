"""The commits of a job whose work runs in a thread: the thread waits for each, and a cancellation ends them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from penstock.contracts.commands import ReplaceExtents
from penstock.contracts.rejections import Rejection

Replace = Callable[[ReplaceExtents], Coroutine[Any, Any, list[Rejection]]]


class Commits:
    """Call it in the thread; make and cancel it in the event loop, which runs `replace`.

    A commit may take minutes while no sequencer answers. A cancelled job must not wait for that, nor commit more.
    """

    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._loop = asyncio.get_running_loop()
        self._is_cancelled = threading.Event()
        self._latest: Future[list[Rejection]] | None = None

    def __call__(self, command: ReplaceExtents) -> bool:
        """Send the command until its outcome is known; whether every run was accepted. Raises after `cancel`."""
        committing = self._latest = asyncio.run_coroutine_threadsafe(self._replace(command), self._loop)
        if self._is_cancelled.is_set():
            committing.cancel()
        return all(rejection is Rejection.NONE for rejection in committing.result())

    def cancel(self) -> None:
        """End the commit in progress, whose outcome is then unknown, and let no other begin."""
        self._is_cancelled.set()
        if self._latest is not None:
            self._latest.cancel()
