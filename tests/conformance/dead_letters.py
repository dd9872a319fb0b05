"""Compares dead letters of share groups at Apache Kafka and at Penstock, and prints each difference.

`python -m tests.conformance.dead_letters` runs the scenario of `scenarios/dead_letters.py` unchanged at both, with the
Java client. It exits with 1 if a difference is not on purpose, or if one on purpose is missing.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from benches.kafka.systems.apache import apache
from tests.conformance import provision
from tests.conformance.scenario import Stage
from tests.conformance.scenarios.dead_letters import OWN_HEADERS, Answers, answers
from tests.testkit.clusters.cluster import running

# Kafka 4.4 copies no headers of the record. Its later sources do.
ON_PURPOSE = {OWN_HEADERS}
SETTINGS = {"PENSTOCK_SHARE_GROUPS": "true"}


def differences(kafka: Answers, penstock: Answers) -> set[str]:
    """The labels of the answers that are different."""
    return {label for label in kafka | penstock if kafka.get(label) != penstock.get(label)}


def compare() -> int:
    """Print the results; the number of unexpected ones."""
    os.environ |= SETTINGS
    command = [*provision.java_command(), "JavaClient"]
    with tempfile.TemporaryDirectory(prefix="penstock-dead-letters-") as name:
        folder = Path(name)

        def ask(bootstrap: str) -> Answers:
            began_s = time.monotonic()
            found = answers(Stage(bootstrap, "letters", command, {}, folder))
            print(f"{len(found)} answers of {bootstrap} in {time.monotonic() - began_s:.0f} s", flush=True)
            return found

        with apache() as broker:
            theirs = ask(broker.bootstrap)
        with running(folder / "data") as cluster:
            ours = ask(cluster.kafka)
    different = differences(theirs, ours)
    for label in sorted(different):
        print(f"{label}\n  Kafka    {theirs.get(label)}\n  Penstock {ours.get(label)}")
    unexpected = different ^ ON_PURPOSE
    print(f"{len(theirs | ours)} answers, {len(different)} different, {len(unexpected)} unexpected")
    return len(unexpected)


if __name__ == "__main__":
    sys.exit(int(compare() > 0))
