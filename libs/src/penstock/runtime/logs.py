"""Logs: one line per event with a constant name and facts, pretty on a terminal and JSON otherwise, on stderr."""

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LIBRARY_LEVEL = logging.WARNING  # what other people's libraries say below this is not our users' concern


def configure_logs(service: str, instance: str, level: str, format: str, stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (stderr), each with the service and the instance."""
    stream = stream or sys.stderr

    def name_ourselves(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        event["instance"] = instance
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_ourselves,
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


def _pretty_ending(stream: TextIO) -> list[Processor]:
    plain = structlog.dev.plain_traceback  # the pretty one prints local variables, and those may hold record contents
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]


def _json_ending() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _configure_library_logs(stream: TextIO, shared: list[Processor], ending: list[Processor]) -> None:
    """Lines that libraries write through the standard library look like ours."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    logging.basicConfig(level=LIBRARY_LEVEL, handlers=[handler], force=True)
