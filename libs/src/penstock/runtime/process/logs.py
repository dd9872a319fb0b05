"""Logs on stderr: one line per event, with a constant name and facts; pretty on a terminal and JSON otherwise."""

import io
import logging
import os
import sys
from collections.abc import Callable
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from penstock.runtime.process.log_file import LogFile
from penstock.runtime.traces.traces import current_trace_id

LIBRARY_LEVEL = logging.WARNING  # lower levels of libraries do not concern the operators of Penstock


class ForgivingStream(io.TextIOBase):
    """Writes whole lines to `stream`. If a write fails, as on a full disk, it counts the line and raises nothing.

    There is no buffer: at the end of the process, Python would fail again on the rest of a buffer.
    """

    def __init__(self, stream: TextIO, describe_loss: Callable[[int], str], log_file: LogFile | None = None) -> None:
        self._stream = stream
        self._log_file = log_file
        self._describe_loss = describe_loss
        self._descriptor = _descriptor(stream)
        self._lost = 0
        self._is_torn = False  # the last line was cut off in its middle

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        if self._log_file is not None:
            self._log_file.make_room(len(text))
        try:
            if self._lost:
                self._put(("\n" if self._is_torn else "") + self._describe_loss(self._lost))
                self._lost = 0
            self._put(text)
        except OSError:
            self._lost += 1
        return len(text)

    def _put(self, text: str) -> None:
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return
        rest = text.encode(errors="backslashreplace")
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
            self._is_torn = bool(rest)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except OSError:
        return None  # the stream is in memory


def configure_logs(
    service: str,
    instance: str,
    level: str,
    format: str,
    stream: TextIO | None = None,
    *,
    log_file: LogFile | None = None,
) -> None:
    """Send every log line of this process to `stream` (default: stderr), with the service and the instance.

    If the stream appends to `log_file`, that is emptied when it is full.
    """

    def describe_loss(lines: int) -> str:
        logger = structlog.wrap_logger(structlog.ReturnLogger(), processors=[*shared, *ending])
        return f"{logger.warning('log_lines_lost', lines=lines)}\n"

    stream = cast(TextIO, ForgivingStream(stream or sys.stderr, describe_loss, log_file))

    def name_ourselves(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        event["instance"] = instance
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_ourselves,
        _name_trace,
    ]
    pretty = format == "pretty" or (format == "auto" and stream.isatty())
    ending = _pretty_ending(stream) if pretty else _json_ending()
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    _configure_library_logs(stream, [*shared, structlog.stdlib.add_logger_name], ending)


def _name_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the trace of the request that the line is about, if that is sampled."""
    if found := current_trace_id():
        event["trace_id"] = found
    return event


def _pretty_ending(stream: TextIO) -> list[Processor]:
    plain = structlog.dev.plain_traceback  # the pretty one prints local variables, which may hold record contents
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]


def _json_ending() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _configure_library_logs(stream: TextIO, shared: list[Processor], ending: list[Processor]) -> None:
    """Give log lines of libraries (through the standard library) the same format."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    logging.basicConfig(level=LIBRARY_LEVEL, handlers=[handler], force=True)
