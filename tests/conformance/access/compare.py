"""Sends the same requests to Kafka and to Penstock under many sets of bindings, and keeps the results.

`python -m tests.conformance.access.compare` writes docs/access.json: one letter for each request and set of
bindings. It is `=` if both brokers refuse the same resources with the same errors. The page also has both results of
each difference.
"""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.kafkawire.api.metadata import MetadataRequest, MetadataRequestTopic
from penstock.kafkawire.error_codes import ErrorCode
from tests.conformance.access.brokers import Broker, Connection, kafka, penstock
from tests.conformance.access.questions import (
    EVERYTHING,
    EXISTING,
    USER,
    Question,
    binding_sets,
    is_loading,
    questions,
    refusals,
)
from tests.testkit.clusters.cluster import wait_until

KEPT = Path(__file__).parents[3] / "docs" / "access.json"
READY_TIMEOUT_S, POLL_S = 15.0, 0.1
CLOSED = {"": [-1]}  # the result if the broker ended the connection


class Cell(msgspec.Struct, frozen=True):
    """One request under one set of bindings, at both brokers."""

    question: str
    bindings: str
    kafka: dict[str, list[int]]
    penstock: dict[str, list[int]]


def results(broker: Broker) -> dict[tuple[str, str], dict[str, list[int]]]:
    """The results of one broker, by question and set of bindings."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    names = {broker.topic_id: EXISTING}
    sets = binding_sets()
    _set(broker, sets[EVERYTHING], "marker")
    for question in questions(broker.topic_id, "t-new"):  # so that groups and coordinators exist from now on
        _answer(broker, question)
    for number, (label, bindings) in enumerate(sets.items()):
        _set(broker, bindings, f"marker-{number}")
        for question in questions(broker.topic_id, f"t-new-{number}"):
            answer = _answer(broker, question)
            found[question.label, label] = CLOSED if answer is None else refusals(answer, names)
    return found


def _answer(broker: Broker, question: Question) -> Any:
    """The answer to a question, when the broker's coordinators are ready; None if it ends the connection."""
    until_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        connection = Connection(broker.address)
        try:
            answer = connection.ask(question.key, question.version, question.request)
        except ConnectionError:
            return None
        finally:
            connection.close()
        if not is_loading(answer) or time.monotonic() > until_s:
            return answer
        time.sleep(POLL_S)


def _set(broker: Broker, bindings: Sequence[AclBinding], marker: str) -> None:
    """Replace the bindings, and wait until the broker uses them: its clients may then describe the marker."""
    seen = AclBinding(
        ResourceType.TOPIC, marker, PatternType.LITERAL, USER, "*", AclOperation.DESCRIBE, AclPermission.ALLOW
    )
    broker.replace([*bindings, seen])
    asked = MetadataRequest([MetadataRequestTopic(name=marker)], False)

    def is_seen() -> bool:
        connection = Connection(broker.address)
        try:
            (topic,) = connection.ask(3, 12, asked).topics
        except ConnectionError:
            return False
        finally:
            connection.close()
        return bool(topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    wait_until(is_seen, 30.0, f"{broker.name} to use its bindings")


def compare() -> list[Cell]:
    """All cells."""
    with tempfile.TemporaryDirectory() as folder:
        with kafka(_below(folder, "kafka"), EXISTING) as broker:
            theirs = results(broker)
        with penstock(_below(folder, "penstock"), EXISTING) as broker:
            ours = results(broker)
    return [Cell(*place, theirs[place], ours[place]) for place in theirs]


def _below(folder: str, name: str) -> Path:
    path = Path(folder) / name
    path.mkdir()
    return path


def kept(cells: Sequence[Cell]) -> dict[str, Any]:
    """The results as they are kept: one letter per cell, and both results of each difference."""
    labels = list(binding_sets())
    rows: dict[str, str] = {}
    for cell in cells:
        letter = "=" if cell.kafka == cell.penstock else "x"
        rows[cell.question] = rows.get(cell.question, "") + letter
    assert all(len(row) == len(labels) for row in rows.values())
    different = [msgspec.to_builtins(cell) for cell in cells if cell.kafka != cell.penstock]
    refused = sum(any(any(codes) for codes in cell.kafka.values()) for cell in cells)
    return {"cells": len(cells), "refused": refused, "bindings": labels, "same": rows, "different": different}


if __name__ == "__main__":
    found = kept(compare())
    KEPT.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['cells']} cells, {found['refused']} with rejections, {len(found['different'])} differ: {KEPT}")
