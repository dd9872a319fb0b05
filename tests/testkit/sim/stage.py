"""Simulated processes and clients in one environment, with the means to run them and to see their defects."""

import abc
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from tests.testkit.sim.environment.loop import SimLoop
from tests.testkit.sim.environment.process import Process
from tests.testkit.sim.environment.shared import SharedEnvironment
from tests.testkit.sim.length import Length

LOOK_INTERVAL_S = 0.005  # between two checks of a condition, as checks take time
# Log events that show a bug: they are about messages that only services send.
BUGS = frozenset(
    (
        "request_failed",
        "records_not_readable",
        "announcement_unreadable",
        "flush_message_malformed",
        "cache_request_malformed",
        "presence_not_decoded",
        "request_not_understood",
        "message_not_understood",
        "segment_commit_impossible",
        "answer_too_large",
        "entry_not_announced",
        "object_unknown",
    )
)


class Stage(SharedEnvironment, abc.ABC):
    """The processes and clients of one run. `Nemesis` gives them faults."""

    processes: list[Process]
    client_loop: SimLoop

    def __init__(self, seed: int, length: Length, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.length = length
        self.old_replicas: dict[str, None] = {}  # the sequencers that run an earlier release
        self.happened: Counter[str] = Counter()  # faults that have no other count

    @property
    @abc.abstractmethod
    def level(self) -> int:
        """The level of the cluster; the lowest one of several clusters."""

    def expects_failure(self, cluster: str) -> bool:
        """Whether the app of a hosted cluster may fail now."""
        return False

    async def upgrade(self) -> None:
        """Replace the sequencers of an earlier release."""

    def role(self, role: str) -> list[Process]:
        """The processes that have a role."""
        return [each for each in self.processes if role in each.roles]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of a client."""
        self.client_loop.create_task(work)

    def end(self) -> None:
        """Kill all processes and clients."""
        self.client_loop.kill()
        for process in self.processes:
            process.is_wanted = False
            process.kill()
        self.infrastructure.kill()

    def until(
        self, what: str, condition: Callable[[], object], timeout_s: float, look_interval_s: float = LOOK_INTERVAL_S
    ) -> bool:
        """Run until the condition is true; False after a broken guarantee, or a failure after the timeout."""
        self.timeline.run(lambda: condition() or self.failures, self.now_s + timeout_s, look_interval_s)
        if not self.failures and not condition():
            self.fail(f"waits for ever: {what}, at {self.now_s:.1f} s")
        return not self.failures

    def run_for(self, duration_s: float) -> None:
        """Run for a duration, or until a failure."""
        end_s = self.now_s + duration_s
        self.infrastructure.call_at(end_s, lambda: None)
        self.timeline.run(lambda: self.failures, end_s, LOOK_INTERVAL_S)

    def _client_exception(self, context: dict[str, Any]) -> None:
        self.fail(f"a client: {context.get('message')}: {context.get('exception')!r}")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Write the log events of services to the trace, and record those of bugs as failures."""
        before = structlog.get_config()
        structlog.configure(
            processors=[structlog.contextvars.merge_contextvars, self._take_log],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            cache_logger_on_first_use=False,
        )

        try:
            yield
        finally:
            structlog.configure(**before)

    def _take_log(self, _logger: Any, level: str, event: Any) -> Any:
        name = event["event"]
        is_bug = name == "service_failed" and (event.get("exc_info") is not None or "halted" in event["error"])
        if is_bug and not self.expects_failure(event.get("cluster", "")):
            self.fail(f"a hosted cluster failed: {dict(event)}")  # a process that hosts clusters goes on
        self.record(f"log {level} {name} {event.get('error', '')}")
        if name in BUGS:
            self.fail(f"a service logged {name}: {dict(event)}")
        raise structlog.DropEvent
