"""The reports of writer processes: a crash loses no step that was reported, and another process continues."""

import sys
from typing import Any

import pytest

from tests.testkit.loads.transaction_history import History, Outcome, Transaction
from tests.testkit.loads.transaction_reports import WriterProcess, moment

# A writer in which `deaths` is the number of deaths before. It ends when its standard input ends.
WRITER = """
import os, signal, sys
from tests.testkit.loads.transaction_reports import Reporter, moment
GROUP_PLACE, PLACE = ("clerks", ("orders", 0)), ("accounts", 2)
deaths = int(sys.argv[-1])
reporter = Reporter(sys.stdout.fileno())
reporter.begin_life()
asked_at = moment()
reporter.observe(GROUP_PLACE, 5, asked_at)
number = reporter.begin()
value = f"record {deaths}"
reporter.send(number, PLACE, value)
reporter.consume(number, GROUP_PLACE, 5, 9)
"""
END = "os.read(sys.stdin.fileno(), 1)\n"
COMMIT = "reporter.ask(number)\nreporter.acknowledged(value, 7)\nreporter.committed(number)\n"


def crash(name: str, condition: str = "True") -> str:
    return f"if {condition}: os.kill(os.getpid(), signal.{name})\n"


def run(program: str, **settings: Any) -> tuple[WriterProcess, History]:
    """The writer after it has ended, and its `History`."""
    history = History(moment)
    writer = WriterProcess("writer-0", [sys.executable, "-c", WRITER + program], history, **settings)
    writer.start()
    writer.stop()
    writer.join()
    return writer, history


def outcomes(history: History) -> list[Outcome]:
    return [each.outcome for each in history.transactions]


def test_all_events_of_a_writer_are_in_the_history() -> None:
    before = moment()
    writer, history = run(COMMIT + END)
    assert writer.failure is None
    [life], [observed] = history.lives, history.observed
    [transaction] = life.transactions
    [sent] = transaction.sent
    assert (sent.place, sent.value, sent.offset) == (("accounts", 2), b"record 0", 7)
    assert transaction.consumed == {("clerks", ("orders", 0)): (5, 9)}
    assert (observed.group_place, observed.offset, observed.is_last) == (("clerks", ("orders", 0)), 5, False)
    moments = [before, life.begun_at, observed.asked_at, observed.answered_at, *asked(transaction), moment()]
    assert moments == sorted(moments)


def asked(transaction: Transaction) -> tuple[int, int]:
    assert transaction.asked_at is not None
    assert transaction.committed_at is not None
    return transaction.asked_at, transaction.committed_at


@pytest.mark.parametrize("name", ["SIGKILL", "SIGABRT"])
def test_a_commit_that_a_crash_leaves_without_an_answer_is_unknown_and_another_writer_continues(name: str) -> None:
    writer, history = run("reporter.ask(number)\n" + crash(name, "not deaths") + COMMIT + END)
    assert writer.failure is None
    assert writer.deaths == {name: 1}
    assert outcomes(history) == [Outcome.UNKNOWN, Outcome.COMMITTED]
    assert [sent.value for each in history.transactions for sent in each.sent] == [b"record 0", b"record 1"]
    first, second = history.lives
    assert first.order < second.order
    assert first.begun_at < second.begun_at


def test_a_transaction_is_aborted_if_the_crash_comes_before_the_request_to_commit() -> None:
    _, history = run(crash("SIGABRT", "not deaths") + COMMIT + END)
    assert outcomes(history) == [Outcome.ABORTED, Outcome.COMMITTED]


def test_an_answer_before_the_crash_counts() -> None:
    _, history = run(COMMIT + crash("SIGABRT", "not deaths") + END)
    assert outcomes(history) == [Outcome.COMMITTED, Outcome.COMMITTED]


def test_a_line_that_the_crash_cuts_is_a_step_that_did_not_happen() -> None:
    cut = "if not deaths: os.write(1, b'[\"ask\", 0, 12')\n"
    writer, history = run(cut + crash("SIGKILL", "not deaths") + COMMIT + END)
    assert writer.failure is None
    assert outcomes(history) == [Outcome.ABORTED, Outcome.COMMITTED]


def test_two_crashes_soon_after_each_other_are_a_failure() -> None:
    writer, history = run(crash("SIGABRT"))
    assert "two deaths" in str(writer.failure)
    assert writer.deaths == {"SIGABRT": 2}
    assert outcomes(history) == [Outcome.ABORTED, Outcome.ABORTED]


def test_rare_crashes_are_counted() -> None:
    writer, _ = run(crash("SIGABRT", "deaths < 3") + END, death_interval_s=0.0)
    assert writer.failure is None
    assert writer.deaths == {"SIGABRT": 3}


@pytest.mark.parametrize(
    ("program", "reason"), [("reporter.fail('a bad answer')\nsys.exit(1)\n", "a bad answer"), ("sys.exit(3)", "code 3")]
)
def test_an_error_in_a_writer_is_a_failure_with_its_text(program: str, reason: str) -> None:
    writer, _ = run(program)
    assert reason in str(writer.failure)
    assert not writer.deaths


def test_a_line_that_is_no_report_is_a_failure() -> None:
    writer, _ = run("os.write(1, b'noise\\n')\n" + END)
    assert writer.failure is not None


def test_giving_up_ends_a_writer_that_does_not_end_by_itself() -> None:
    history = History(moment)
    writer = WriterProcess("writer-0", [sys.executable, "-c", WRITER + "signal.pause()\n"], history)
    writer.start()
    writer.give_up()
    writer.join()
    assert writer.failure is None
    assert not writer.deaths
