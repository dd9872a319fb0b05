"""Virtual time, which passes only while all tasks wait: tests with timeouts are fast, and the same in every run."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

Arguments = ParamSpec("Arguments")

START_MS = 1_700_000_000_000  # since 1970; the wall clock's time at the loop's zero


class _NeverSleeps(selectors.DefaultSelector):  # type: ignore[valid-type, misc]  # the base depends on the platform
    """A selector that advances the virtual time instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all tasks wait for ever"
            self.now_s += max(timeout, 0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer that is due; for code without sockets."""

    def __init__(self) -> None:
        self._virtual = _NeverSleeps()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s


class VirtualClock:
    """`Clock` of the running virtual loop."""

    def now_ms(self) -> int:
        return START_MS + round(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


class CountingEntropy:
    """`Entropy` that is different at each call, and the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def take(self, count: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(count, "big")


def in_virtual_time(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Run an async test on a virtual loop; fixtures are passed on."""

    @wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
