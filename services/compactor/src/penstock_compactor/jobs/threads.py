"""Blocking work of jobs, such as calls of Spark, in threads that never delay the end of the process."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """The result of blocking work in a thread of its own; its error is raised here.

    The work runs on if the task that waits for it is cancelled. The process does not wait for it when it ends.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def finish(result: Result | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    def target() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  the waiting task raises it again
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=target, name="job", daemon=True).start()
    return await done
