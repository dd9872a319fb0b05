"""The interface of services to traces: spans with given times, and the trace of the current task.

A trace travels between processes as text, a `traceparent` of the W3C, in optional fields of messages. "" stands for a
request that is not sampled. Only gateways begin traces; all other spans have a parent, which was sampled.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

TRACE_BYTES_MAX = 64  # of a `traceparent`, which has 55, with the head of its text in a message

Fact = str | int | float | bool

_current: ContextVar[str] = ContextVar("trace", default="")


def current_trace() -> str:
    """The span in which the current task works, as a `traceparent`; "" if it works for no sampled request."""
    return _current.get()


def current_trace_id() -> str:
    """The id of the current task's trace, 32 hexadecimal digits; "" if it works for no sampled request.

    It is also "" for a text of another process that is no trace.
    """
    parts = _current.get().split("-")
    return parts[1] if len(parts) > 1 else ""


@contextmanager
def within(trace: str) -> Iterator[None]:
    """Make a span the current one for a block, and for the tasks that the block creates."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


class Span(Protocol):
    """A stage of a sampled request. Its times are those of the monotonic clock that also measures the stage."""

    @property
    def trace(self) -> str:
        """This span as the parent of others, and as the end of links: a `traceparent`."""

    def end(self, at_s: float, *, failure: str = "", **facts: Fact) -> None:
        """End it, once; a `failure` marks it as failed."""


class Traces(Protocol):
    """The spans of one service."""

    @property
    def is_on(self) -> bool:
        """Whether there can be spans; a service asks this once for each request, and does nothing more if not."""

    def root(self, name: str, began_s: float, **facts: Fact) -> AbstractContextManager[None]:
        """Begin the trace of a request, if it is sampled, and make it the current one for a block."""

    def stage(self, name: str, **facts: Fact) -> AbstractContextManager[None]:
        """Begin a span under the current one, if there is one, and make it the current one for a block."""

    def begin(self, name: str, began_s: float, parent: str, links: Sequence[str] = (), **facts: Fact) -> Span | None:
        """Begin a span under `parent`, with links to other spans; None if `parent` is no sampled span."""

    async def close(self) -> None:
        """Send what is not sent yet, for a short time at most."""


class NoTraces:
    """No request is sampled."""

    is_on = False

    def root(self, name: str, began_s: float, **facts: Fact) -> AbstractContextManager[None]:
        return _NOTHING

    def stage(self, name: str, **facts: Fact) -> AbstractContextManager[None]:
        return _NOTHING

    def begin(self, name: str, began_s: float, parent: str, links: Sequence[str] = (), **facts: Fact) -> Span | None:
        return None

    async def close(self) -> None:
        """There is nothing to send."""


_NOTHING = nullcontext()
NO_TRACES: Traces = NoTraces()


def record(traces: Traces, name: str, began_s: float, ended_s: float, parent: str, **facts: Fact) -> None:
    """Record a stage that is over, unless it belongs to no sampled request."""
    if parent and (span := traces.begin(name, began_s, parent, (), **facts)) is not None:
        span.end(ended_s)
