"""The tests of librdkafka, whose sources are in the npm package of Confluent's client for JavaScript."""

import re
import tarfile
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.conformance.logins import as_librdkafka
from tests.conformance.provision import made, pinned_version, program, run
from tests.conformance.scenarios import tools
from tests.suites.brokers.shape import Brokers, Shape
from tests.suites.fetched import npm_archive
from tests.suites.suites.suite import FAILED, PASSED, SKIPPED, Command, Outcome
from tests.suites.suites.tool_scripts import tool_scripts

PACKAGE = "@confluentinc/kafka-javascript"
BUILD_TIMEOUT_S = 3600.0
PARTITIONS = 4  # of new topics, as the project's own clusters have
TIMEOUT_FACTOR = 3  # brokers, clients and a second test share the machine
OUTCOMES = {"PASSED": PASSED, "FAILED": FAILED, "RUNNING": FAILED, "SKIPPED": SKIPPED}
TEST = re.compile(r"_TEST\((\w+),((?:[^()]|\([^()]*\))*)\)")
RESULT = re.compile(r"^\|\s*(\d{4}\w+)\s*\|\s*([A-Z_]+)\s*\|[^|]*\|(.*)$", re.MULTILINE)
REASON = re.compile(r'^### Test "\d{4}\w*" failed at ([^\n]*?)\(\) at [^\n]*\n([^\n]*)', re.MULTILINE)
# Tests with a simulated broker, by hand, or that fail in the project itself.
APART = re.compile(r"TEST_F_(LOCAL|MANUAL|KNOWN_ISSUE)\b")
FILTERED = ("", "Filtered due to negative test flags")  # reasons of the runner, not of a test
SCRIPTS = {"kafka-topics.sh": tools.TOPICS, "kafka-acls.sh": tools.ACLS, "kafka-configs.sh": tools.CONFIGS}


class Settings(NamedTuple):
    """The differences between runs of librdkafka's tests."""

    shape: Shape = Shape(partitions=PARTITIONS)
    scenario: str = "default"  # as the tests call a kind of cluster
    protocol: str = "classic"  # of groups
    only: tuple[str, ...] = ()  # numbers; all tests of the scenario without any


class Librdkafka:
    """All tests that use brokers, or some of them."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.shape = settings.shape
        self._settings = settings

    @property
    def project(self) -> str:
        """librdkafka, with the version in its sources."""
        header = (self._built / "src" / "rdkafka.h").read_text()
        found = re.search(r"#define RD_KAFKA_VERSION +0x(..)(..)(..)", header)
        assert found is not None
        return "librdkafka " + ".".join(str(int(each, 16)) for each in found.groups())

    def tests(self) -> list[str]:
        """The numbers of tests; one number may have several."""
        return list(self._names)

    def command(self, test: str, brokers: Brokers, folder: Path) -> Command:
        """The process for one number."""
        login = as_librdkafka(brokers.login) if brokers.login else ""
        own = f"test.timeout.multiplier={TIMEOUT_FACTOR}\nbootstrap.servers={brokers.bootstrap}\n"
        (folder / "test.conf").write_text(own + login)
        environment = {
            "TESTS": test,
            "TEST_KAFKA_VERSION": pinned_version("kafka-clients"),
            "TEST_CONSUMER_GROUP_PROTOCOL": self._settings.protocol,
            "LD_LIBRARY_PATH": f"{self._built / 'src'}:{self._built / 'src-cpp'}",
            "KAFKA_PATH": str(tool_scripts(SCRIPTS)),
            "BROKERS": brokers.bootstrap,
        }
        # The runner ends with an assertion after a failure: its summary must be written by then.
        runner = [program("stdbuf"), "-oL", str(self._built / "tests" / "test-runner")]
        return Command([*runner, "-p1", "-L", "-s", self._settings.scenario], environment)

    def outcomes(self, test: str, code: int, output: str) -> dict[str, Outcome]:
        """The outcomes of all tests with this number."""
        return read_outcomes(output, self._names[test], code)

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        """The chosen tests that use brokers, by number."""
        source = (self._built / "tests" / "test.c").read_text()
        numbers = numbered_tests(source, self._settings.scenario)
        return {number: names for number, names in numbers.items() if number in (self._settings.only or numbers)}

    @cached_property
    def _built(self) -> Path:
        """The folder with the compiled sources."""
        archive = npm_archive(PACKAGE)

        def make(folder: Path) -> None:
            with tarfile.open(archive) as opened:
                opened.extractall(folder / "unpacked", filter="data")
            sources = folder / "unpacked" / "package" / "deps" / "librdkafka"
            for each in list(sources.iterdir()):
                each.rename(folder / each.name)
            run([program("bash"), "./configure", "--disable-lz4-ext"], folder, timeout_s=BUILD_TIMEOUT_S)
            make_program = program("make")
            run([make_program, "-j2", "libs"], folder, timeout_s=BUILD_TIMEOUT_S)
            run([make_program, "-j2", "-C", "tests", "build"], folder, timeout_s=BUILD_TIMEOUT_S)

        return made("suite-librdkafka", str(archive), make)


def numbered_tests(source: str, scenario: str) -> dict[str, list[str]]:
    """The tests of a scenario that use brokers, from the table in the sources."""
    numbers: dict[str, list[str]] = {}
    for name, rest in TEST.findall(source):
        given = re.search(r'\.scenario = "([^"]*)"', rest)
        scenarios = given[1].split(",") if given else ["default"]
        if name[:4].isdigit() and not APART.search(rest) and scenario in scenarios:
            numbers.setdefault(name[:4], []).append(name)
    return numbers


def read_outcomes(output: str, expected: list[str], code: int) -> dict[str, Outcome]:
    """The outcomes in the summary, and a failure for each expected test that is not there.

    A test that skips itself gives a reason. The others that are skipped belong to other runs. An exit code without a
    failed test is the runner's own: threads or memory are left.
    """
    found = {
        name: Outcome(OUTCOMES[word], why.strip())
        for name, word, why in RESULT.findall(output)
        if word in OUTCOMES and not (word == "SKIPPED" and why.strip() in FILTERED)
    }
    reason = next(map(": ".join, REASON.findall(output)), "") or (output.strip().splitlines() or [""])[-1]
    has_failure = any(each.outcome == FAILED for each in found.values())
    lost = [name for name in expected if name not in found or (code and not has_failure)]
    return found | {name: Outcome(FAILED, reason) for name in lost}
