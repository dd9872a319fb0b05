"""Kafka's own command-line tools, each as its manual shows it."""

from tests.conformance.scenario import Scenario


def all_scenarios() -> list[Scenario]:
    """In the order of the table."""
    return []
