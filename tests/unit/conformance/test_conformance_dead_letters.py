"""The comparison of dead letters: which answers of two clusters differ, and which dead letters Kafka writes."""

from tests.conformance.dead_letters import differences
from tests.conformance.scenarios.dead_letters import CONTEXT, expected_letters


def test_an_answer_that_differs_or_that_only_one_cluster_has_is_a_difference() -> None:
    kafka = {"same": [1], "other": [1], "only Kafka's": []}
    penstock = {"same": [1], "other": [2], "only Penstock's": []}
    assert differences(kafka, penstock) == {"other", "only Kafka's", "only Penstock's"}


def test_dead_letters_without_copies_differ_only_in_key_and_value() -> None:
    copied, alone = expected_letters(copies=True), expected_letters(copies=False)
    assert [[partition, None, None, context] for partition, _, _, context in copied] == alone
    assert [CONTEXT + "offset", "2"] in copied[1][3]
    assert copied[1][1:3] == ["key", "released"]
