"""Log lines: JSON for machines, pretty for people, in one format for services and libraries."""

import io
import json
import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from penstock.runtime.process.logs import configure_logs
from penstock.runtime.traces.traces import within


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FullDisk(io.StringIO):
    """Rejects all writes while it is full."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


@contextmanager
def files_no_longer_than(size_bytes: int) -> Iterator[None]:
    """A write at the limit is cut short, and a later one fails, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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


def test_a_line_about_a_sampled_request_names_its_trace() -> None:
    stream = io.StringIO()
    configure_logs("gateway", "gateway-1", "info", "auto", stream)
    log = structlog.get_logger()
    with within("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
        log.info("request_failed")
        with within(""):
            log.info("flushed")
    log.info("stopped")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("trace_id") for line in lines] == ["0af7651916cd43dd8448eb211c80319c", None, None]


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


def test_log_lines_of_libraries_have_the_same_format() -> None:
    stream = io.StringIO()
    configure_logs("gateway", "gateway-1", "info", "json", stream)
    logging.getLogger("some.library").warning("it is %s", "late")
    logging.getLogger("some.library").info("chatter")
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["event"], line["logger"], line["service"]) == ("it is late", "some.library", "gateway")


def test_lines_lost_on_a_full_disk_are_counted_and_the_count_is_logged() -> None:
    stream = FullDisk()
    configure_logs("gateway", "gateway-1", "info", "json", stream)
    structlog.get_logger().info("first_lost")
    logging.getLogger("some.library").warning("lost too")
    stream.is_full = False
    structlog.get_logger().info("back_again")
    structlog.get_logger().info("as_before")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["log_lines_lost", "back_again", "as_before"]
    assert (lines[0]["lines"], lines[0]["service"], lines[0]["level"]) == (2, "gateway", "warning")


def test_a_line_cut_off_by_a_full_disk_damages_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as stream:
        configure_logs("gateway", "gateway-1", "info", "json", stream)
        structlog.get_logger().info("before")
        with files_no_longer_than(path.stat().st_size + 20):
            structlog.get_logger().info("cut_off")
            structlog.get_logger().info("lost")
        structlog.get_logger().info("after")
    before, cut_off, lost, after = path.read_text().splitlines()
    assert (json.loads(before)["event"], len(cut_off)) == ("before", 20)
    assert (json.loads(lost)["event"], json.loads(lost)["lines"]) == ("log_lines_lost", 2)
    assert json.loads(after)["event"] == "after"
