"""The interface of a test suite of another project, as `make suites` uses it."""

from pathlib import Path
from typing import NamedTuple, Protocol

from tests.suites.brokers.shape import Brokers, Shape

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Command(NamedTuple):
    """A process that runs one test."""

    arguments: list[str]
    environment: dict[str, str]  # beside that of this process


class Outcome(NamedTuple):
    """How one test ended, and why if it did not pass."""

    outcome: str
    detail: str = ""


class Suite(Protocol):
    """A suite with fixed settings. Every test has a process of its own, so that a hang or a crash costs one test."""

    @property
    def name(self) -> str:
        """The name in options, results and tables."""

    @property
    def project(self) -> str:
        """The project with its version."""

    @property
    def shape(self) -> Shape:
        """The brokers that the suite needs."""

    def tests(self) -> list[str]:
        """Build the suite if necessary, and list its tests; `Missing` if this machine lacks something."""

    def command(self, test: str, brokers: Brokers, folder: Path) -> Command:
        """The process of one test, which runs in `folder` and may write there."""

    def outcomes(self, test: str, code: int, output: str) -> dict[str, Outcome]:
        """The outcomes by name of the test and its parts, from the exit code and all output."""
