"""Scenarios with KafkaJS in place of its own tests, which no package index has: those of the conformance runs."""

import re
import sys
from pathlib import Path

from tests.conformance import results
from tests.conformance.catalogue import EVERYTHING
from tests.conformance.provision import node_modules, pins
from tests.suites.brokers.shape import Brokers, Shape
from tests.suites.suites.suite import FAILED, PASSED, SKIPPED, Command, Outcome

ROOT = Path(__file__).parents[3]
CLIENT = "KafkaJS"
OUTCOMES = {results.PASSED: PASSED, results.FAILED: FAILED, results.NOT_OFFERED: SKIPPED, results.NOT_RUN: FAILED}
RESULT = re.compile(rf"^{CLIENT} +(\S+) +({'|'.join(OUTCOMES)}) +[\d.]+ s *(.*)$", re.MULTILINE)


class KafkaJs:
    """The scenarios of KafkaJS that need no logins."""

    name = "kafkajs"
    shape = Shape()

    @property
    def project(self) -> str:
        """KafkaJS, with the pinned version."""
        return f"KafkaJS {pins()['npm']['kafkajs']['version']} (scenarios of Penstock)"

    def tests(self) -> list[str]:
        """The names of the scenarios."""
        node_modules()
        (client,) = (each for each in EVERYTHING.clients if each.name == CLIENT)
        return [each.name for each in EVERYTHING.scenarios_of(client) if not each.needs_logins]

    def command(self, test: str, brokers: Brokers, folder: Path) -> Command:
        """A conformance run of one scenario. Its exit code is not used, because prefixes may name more scenarios."""
        own = ["--bootstrap", brokers.addresses[0], "--client", CLIENT, "--scenario", test]
        return Command([sys.executable, "-m", "tests.conformance", *own], {"PYTHONPATH": str(ROOT)})

    def outcomes(self, test: str, code: int, output: str) -> dict[str, Outcome]:
        """The outcome in the line of the scenario."""
        for name, word, why in RESULT.findall(output):
            if name == test:
                return {test: Outcome(OUTCOMES[word], why)}
        return {test: Outcome(FAILED, (output.strip().splitlines() or [""])[-1])}
