"""One timeline for many event loops: each simulated process has its own loop, which can be paused and ended.

All loops share the virtual time and one queue. So a run is one sequence of callbacks, the same for the same seed. No
callback takes any time; time passes only while no callback is ready. A paused loop is a process after SIGSTOP: its
callbacks wait, and all run at once when the process continues.
"""

import asyncio
import itertools

# The name looks private, but `asyncio.events.__all__` offers it to event loops; nothing else sets the running loop.
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import Any

CALLBACKS_PER_MOMENT_MAX = 200_000  # more callbacks at one time come from a loop that spins
TASKS_KEPT = 64  # by a loop, before it removes those that are done
NO_STEPS = -1  # the loop is not stopped after some steps
END_ROUNDS_MAX = 50  # cancellations of a task that does not end

Failure = Callable[[dict[str, Any]], None]


class Spinning(AssertionError):
    """A task is busy for ever while no time passes."""


class Handle(list[Any]):
    """A future callback, with the methods that asyncio needs of handles.

    A run makes tens of thousands of handles. A list is made without Python code. The heap of timers also compares
    lists in C, by time and number.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[CALLBACK] = self[ARGS] = None

    def cancelled(self) -> bool:
        return self[CALLBACK] is None

    def when(self) -> float:
        when_s: float = self[WHEN_S]
        return when_s


WHEN_S, NUMBER, LOOP, CALLBACK, ARGS, CONTEXT = range(6)  # in a handle
SOON_S = -1.0  # the time of a handle that is no timer


class Timeline:
    """The virtual time, and all future callbacks of all loops."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.callbacks = 0  # run so far
        self.ready: deque[Handle] = deque()
        self.timers: list[Handle] = []
        self.numbers = itertools.count()
        self.running: SimLoop | None = None  # whose callbacks run

    def run(self, until: Callable[[], object], deadline_s: float, look_interval_s: float = 0.0) -> bool:
        """Run callbacks until the condition is true, or return False after the deadline.

        The condition is checked after all callbacks of one time, and once in `look_interval_s`.
        """
        before = _running_loop()
        self.running = None
        timers, soon = self.timers, self.ready.append
        look_s = self.now_s
        try:
            while True:
                self.run_ready()
                if self.now_s >= look_s:
                    if until():
                        return True
                    look_s = self.now_s + look_interval_s
                while timers and timers[0][CALLBACK] is None:
                    heappop(timers)
                if not timers or timers[0][WHEN_S] > deadline_s:
                    return bool(until())
                if timers[0][WHEN_S] > self.now_s:
                    self.now_s = timers[0][WHEN_S]
                now_s = self.now_s
                while timers and timers[0][WHEN_S] <= now_s:
                    soon(heappop(timers))
        finally:
            _set_running_loop(before)

    def run_ready(self) -> None:
        """Run all ready callbacks, and those that become ready thereby."""
        ready, set_running = self.ready, _set_running_loop
        next_ready = ready.popleft
        last = self.running
        count = 0
        while ready:
            handle = next_ready()
            _, _, loop, callback, args, context = handle
            if callback is None or (loop.is_held and not loop.admit(handle)):
                continue
            if loop is not last:
                set_running(loop)
                last = self.running = loop
            count += 1
            try:
                if context is None:
                    callback(*args)
                else:
                    context.run(callback, *args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001  as every event loop does
                loop.call_exception_handler({"message": f"exception in callback {callback!r}", "exception": error})
            if count > CALLBACKS_PER_MOMENT_MAX:
                raise Spinning(f"{CALLBACKS_PER_MOMENT_MAX} callbacks at {self.now_s} s, the last in {loop.name}")
        self.callbacks += count


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class SimTask(asyncio.Task[Any]):
    """A task whose hash is its number, not its address, so that sets have the same order in every run."""

    __slots__ = ("number",)

    def __hash__(self) -> int:
        try:
            return self.number
        except AttributeError:  # the task is being made, and asyncio adds it to its set of all tasks
            return self.get_loop().newest_number  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process."""

    def __init__(self, timeline: Timeline, name: str, failed: Failure) -> None:
        self.timeline = timeline
        self.name = name
        self.is_held = False  # paused, ended, or `admit` must be called before each step
        self._begun: list[SimTask] = []  # all tasks that are perhaps not done
        self._begun_max = TASKS_KEPT
        self._failed = failed
        self._is_paused = False
        self._is_killed = False  # its tasks are being cancelled, or it is ended
        self._is_ended = False
        self._steps_left = NO_STEPS
        self._on_step: Callable[[], None] = lambda: None
        self._parked: list[tuple[bool, Handle]] = []  # whether it was a timer
        self.newest_number = 0
        self._soon = timeline.ready.append
        self._timers = timeline.timers
        self._next_number = timeline.numbers.__next__

    def admit(self, handle: Handle) -> bool:
        """Whether the handle may run now; otherwise it waits, or never runs."""
        if self._is_ended:
            return False
        if self._is_paused:
            self._parked.append((handle[WHEN_S] >= 0, handle))
            return False
        if self._steps_left == 0:
            self._steps_left = NO_STEPS
            self._hold()
            self.timeline.ready.appendleft(handle)
            self._on_step()
            return False
        self._steps_left -= 1
        return True

    def _hold(self) -> None:
        self.is_held = self._is_paused or self._is_ended or self._steps_left != NO_STEPS

    def stop_after(self, steps: int, on_step: Callable[[], None]) -> None:
        """Call `on_step` instead of a callback after this many more callbacks; never with `NO_STEPS`."""
        self._steps_left, self._on_step = steps, on_step
        self._hold()

    @property
    def tasks(self) -> list[SimTask]:
        """All tasks that are not done, in the order of their start."""
        self._begun = [task for task in self._begun if not task.done()]
        return self._begun

    def pause(self) -> None:
        """Run no callback until `resume`."""
        self._is_paused = True
        self._hold()

    def resume(self, timers_first: bool, order: Callable[[Handle], float] = lambda _: 0.0) -> None:
        """Continue. Timers that became due during the pause run before or after all other waiting callbacks.

        These run in the given order, and callbacks of equal rank in the order in which they came.
        """
        self._is_paused = False
        self._hold()
        parked, self._parked = self._parked, []
        parked.sort(key=lambda each: (each[0] != timers_first, 0.0 if each[0] else order(each[1])))
        self.timeline.ready.extend(handle for _, handle in parked)

    def kill(self) -> list[SimTask]:
        """Cancel all tasks, and run no other callback any more; return the tasks that did not end.

        Their failures have no reader any more. So they are no defect, as in a process that receives SIGKILL.
        """
        self._begun = self.tasks  # reports failures that no task was to read
        self._is_killed = True
        self._is_paused = False
        self._steps_left = NO_STEPS
        self._hold()
        timeline, ready = self.timeline, self.timeline.ready
        own = [handle for _, handle in self._parked]
        own.extend(handle for handle in ready if handle[LOOP] is self)
        others = [handle for handle in ready if handle[LOOP] is not self]
        self._parked.clear()
        before, running = _running_loop(), timeline.running
        timeline.running = None
        ready.clear()
        ready.extend(own)  # no other process runs while the tasks of this one end
        try:
            for _ in range(END_ROUNDS_MAX):
                tasks = self.tasks
                if not tasks:
                    break
                for task in tasks:
                    task.cancel()
                timeline.run_ready()
        finally:
            ready.extendleft(reversed(others))
            timeline.running = running
            _set_running_loop(before)
        self._is_ended = True
        self._hold()
        return self.tasks

    # The methods that asyncio needs of an event loop.

    def time(self) -> float:
        return self.timeline.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle((SOON_S, 0, self, callback, args, context))
        self._soon(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle((when, self._next_number(), self, callback, args, context))
        heappush(self._timers, handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        when_s = self.timeline.now_s + delay
        handle = Handle((when_s, self._next_number(), self, callback, args, context))
        heappush(self._timers, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> SimTask:
        self.newest_number += 1
        task = SimTask(coro, loop=self, name=name, context=context)  # without an `__init__` in Python, for speed
        task.number = self.newest_number
        self._begun.append(task)
        if len(self._begun) > self._begun_max:
            self._begun_max = TASKS_KEPT + 2 * len(self.tasks)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function at once: threads would make the order of callbacks random."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  as executors do
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_killed:
            self._failed(context)

    get_debug = staticmethod(bool)  # type: ignore[assignment]  # returns False without a call into Python, as each future asks

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_ended
