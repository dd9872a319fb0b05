"""The independent model of the simulator reports outcomes and states that Kafka's rules do not allow."""

import ast
from pathlib import Path
from typing import Any

import pytest

from penstock.contracts import commands as c
from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchResult, BatchRun
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import new_state
from tests.testkit.sim.checkers.answer_judge import AnswerJudge
from tests.testkit.sim.checkers.model_judge import differences
from tests.testkit.sim.clients.kafka import OFFSET_FETCH
from tests.testkit.sim.model import cluster
from tests.testkit.sim.model.cluster import Model
from tests.testkit.sim.model.groups import IDLE_MS
from tests.testkit.sim.model.past import Past

TOPIC = bytes(15) + b"t"
CREATE = c.CreateTopic(0, "t", TOPIC, 1, {})
CREATED = c.TopicCreated(TOPIC, 1, {})
LEVEL = c.RaiseLevel(0, 4, True)


class Told:
    """A model with the entries that a test gives it."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.model = Model(self.failures.append)
        self.take(LEVEL, c.Done())
        self.take(CREATE, CREATED)

    def take(self, command: Any, outcome: Any) -> None:
        self.model.apply(self.model.sequence + 1, [command], [outcome])

    def commit(self, offset: int, *, sequence: int = 0, producer_id: int = 7, attributes: int = 0) -> None:
        """Commit a segment with one record, which gets this offset."""
        meta = BatchMeta(100, 1, 0, producer_id, 0, sequence, attributes, bool(attributes))
        segment_id = self.model.sequence.to_bytes(16, "big")
        command = c.CommitSegment(0, segment_id, 100, "w", "z", [BatchRun(TOPIC, 0, 0, [meta])])
        self.take(command, c.SegmentCommitted([[BatchResult(0, offset, 0)]]))

    def commit_offset(self, offset: int) -> None:
        item = c.OffsetToCommit("t", 0, offset, -1, "")
        self.take(c.CommitOffsets(0, "g", -1, "", None, [item]), c.PerItem([Rejection.NONE]))


@pytest.fixture
def told() -> Told:
    return Told()


def test_the_model_shares_no_code_with_the_state_machine() -> None:
    for path in Path(cluster.__file__).parent.glob("*.py"):
        imported = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else _names(node))
        ]
        assert not [name for name in imported if name.startswith("penstock_")], path


def _names(node: ast.AST) -> list[str]:
    return [each.name for each in node.names] if isinstance(node, ast.Import) else []


def test_allowed_outcomes_are_no_failures(told: Told) -> None:
    told.commit(0, sequence=0)
    told.commit(1, sequence=1)
    told.commit(0, sequence=0)  # a duplicate gets its first offset again
    told.commit_offset(2)
    assert not told.failures


@pytest.mark.parametrize(
    ("offset", "sequence", "why"),
    [
        (3, 1, "it got offset 3, the log ends at 1"),
        (1, 0, "sequence 0 was accepted, the next one is 1"),
        (1, 2, "sequence 2 was accepted, the next one is 1"),
        (0, 1, "it is no duplicate"),
    ],
)
def test_a_wrong_place_for_a_batch_is_a_failure(told: Told, offset: int, sequence: int, why: str) -> None:
    told.commit(0, sequence=0)
    told.commit(offset, sequence=sequence)
    assert why in told.failures[0]


@pytest.mark.parametrize(
    ("command", "outcome", "why"),
    [
        (c.CreateTopic(0, "t", bytes(15) + b"u", 1, {}), CREATED, "t exists already"),
        (c.CreateTopic(0, "u", bytes(15) + b"u", 1, {}), c.Rejected(Rejection.TOPIC_EXISTS), "u does not exist"),
        (c.DeleteTopic(0, "t", TOPIC), c.Rejected(Rejection.UNKNOWN_TOPIC), "t exists"),
        (c.DeleteTopic(0, "u", TOPIC), c.Done(), "u does not exist"),
        (c.CreatePartitions(0, "t", 1), c.Done(), "t cannot grow"),
        (c.CommitOffsets(0, "g", 3, "m", None, []), c.PerItem([]), "m is no member"),
        (
            c.CommitOffsets(0, "g", -1, "", None, [c.OffsetToCommit("u", 0, 1, -1, "")]),
            c.PerItem([Rejection.NONE]),
            "u-0 was answered with NONE",
        ),
        (c.EndTxn(0, "id", 7, 0, True), c.TransactionEnded(7, 0), "ended"),
    ],
)
def test_an_outcome_that_kafka_does_not_allow_is_a_failure(told: Told, command: Any, outcome: Any, why: str) -> None:
    if isinstance(command, c.EndTxn):
        told.take(c.InitTransactionalProducer(0, "id", 1_000), c.ProducerAllocated(7, 0))
        why = "id has no transaction"
    told.take(command, outcome)
    assert why in told.failures[0]


def test_a_transaction_ends_once_and_hides_what_follows_it(told: Told) -> None:
    told.take(c.InitTransactionalProducer(0, "id", 1_000), c.ProducerAllocated(7, 0))
    told.commit(0, attributes=TRANSACTIONAL)
    told.commit(1, producer_id=-1, sequence=-1)
    log = told.model.log(TOPIC, 0)
    assert log is not None and log.offsets.stable == 0
    told.take(c.EndTxn(0, "id", 7, 0, False), c.TransactionEnded(7, 0))
    assert log.offsets.stable == log.offsets.end == 3
    assert [(each.first_offset, each.last_offset) for each in log.aborted] == [(0, 2)]
    assert not told.failures
    told.commit(3, sequence=5, attributes=TRANSACTIONAL)
    assert "the next one is 1" in told.failures[0]


def test_of_two_transactions_the_offset_that_was_sent_last_counts(told: Told) -> None:
    for number, name in ((7, "a"), (8, "b")):
        told.take(c.InitTransactionalProducer(0, name, 1_000), c.ProducerAllocated(number, 0))
        item = c.OffsetToCommit("t", 0, number, -1, "")
        commit = c.CommitTxnOffsets(0, name, number, 0, "g", -1, "", None, [item], True)
        told.take(commit, c.PerItem([Rejection.NONE]))
    told.take(c.EndTxn(0, "b", 8, 0, True), c.TransactionEnded(8, 0))
    told.take(c.EndTxn(0, "a", 7, 0, True), c.TransactionEnded(7, 0))
    assert told.model.group("g").committed() == {(TOPIC, 0): 8}


@pytest.mark.parametrize(("idle_ms", "is_wrong"), [(IDLE_MS - 1, True), (IDLE_MS, False)])
def test_only_a_group_that_was_idle_may_begin_with_its_first_generation(
    told: Told, idle_ms: int, is_wrong: bool
) -> None:
    for now_ms in (IDLE_MS, IDLE_MS + idle_ms):
        command = c.JoinGroup(now_ms, "g", "", "member", None, False, "c", "h", 6_000, 6_000, "consumer", [])
        told.take(command, c.Waiting("member", 0))
        if now_ms == IDLE_MS:
            told.model.group("g").generation = 3
    assert bool(told.model.group("g").wrong_commit(1, "member")) == is_wrong


def test_a_state_that_differs_from_the_model_is_a_failure(told: Told) -> None:
    state = new_state()
    apply_entry(state, 1, [[LEVEL]])
    apply_entry(state, 2, [[CREATE]])
    assert not list(differences(told.model, state))
    state.topics["t"].partitions[0].high_watermark = 1
    assert "the logs differ" in next(differences(told.model, state))
    state.topics["t"].partitions[0].high_watermark = 0
    told.commit_offset(1)
    assert "the committed offsets differ" in next(differences(told.model, state))


@pytest.mark.parametrize(("answer", "is_wrong"), [(1, False), (2, False), (0, True), (3, True), (-1, True)])
def test_an_answer_must_have_been_true_since_the_question(told: Told, answer: int, is_wrong: bool) -> None:
    judge = AnswerJudge(told.model, told.failures.append)
    told.commit_offset(0)
    told.commit_offset(1)
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    asked_at = judge.asked(OFFSET_FETCH, request)
    told.commit_offset(2)
    response = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [OffsetFetchResponsePartition(0, answer)])])
    judge.answered("c", OFFSET_FETCH, request, response, asked_at)
    assert bool(told.failures) == is_wrong


def test_the_past_has_all_values_of_a_time() -> None:
    past = Past("a")
    past.set(3, "b")
    past.set(5, "c")
    past.set(5, "d")
    assert past.during(0, 2) == ["a"]
    assert past.during(2, 3) == ["a", "b"]
    assert past.during(3, 4) == ["b"]
    assert past.during(3, 9) == ["b", "c", "d"]
    assert past.during(5, 9) == ["d"]
