"""Log lines: JSON for machines, pretty for people, everybody's the same."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from penstock.runtime.logs import configure_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_away_from_a_terminal_a_line_is_json_with_the_service_and_the_facts() -> None:
    stream = io.StringIO()
    configure_logs("gateway", "gateway-1", "info", "auto", stream)
    structlog.get_logger().info("connection_opened", peer="10.0.0.1", count=3)
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "connection_opened",
        "level": "info",
        "service": "gateway",
        "instance": "gateway-1",
        "peer": "10.0.0.1",
        "count": 3,
    }


def test_on_a_terminal_a_line_is_for_people() -> None:
    stream = Terminal()
    configure_logs("gateway", "gateway-1", "info", "auto", stream)
    structlog.get_logger().warning("connection_lost", peer="10.0.0.1")
    assert "connection_lost" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize(("level", "events"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_only_the_level_and_above_are_written(level: str, events: int) -> None:
    stream = io.StringIO()
    configure_logs("gateway", "gateway-1", level, "json", stream)
    log = structlog.get_logger()
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("something_happened")
    assert len(stream.getvalue().splitlines()) == events


def test_an_exception_stays_in_its_one_line() -> None:
    stream = io.StringIO()
    configure_logs("gateway", "gateway-1", "info", "json", stream)
    structlog.get_logger().error("service_failed", exc_info=ValueError("a bug"))
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: a bug" in json.loads(line)["exception"]


def test_the_lines_of_libraries_look_like_ours() -> None:
    stream = io.StringIO()
    configure_logs("gateway", "gateway-1", "info", "json", stream)
    logging.getLogger("some.library").warning("it is %s", "late")
    logging.getLogger("some.library").info("chatter")
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["event"], line["logger"], line["service"]) == ("it is late", "some.library", "gateway")
