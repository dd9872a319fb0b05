"""The rules for bindings give the answers that Kafka's own StandardAuthorizer gave to thousands of questions."""

from penstock_gateway.security.acl_index import AclIndex
from penstock_gateway.security.authorizer import parse_super_users
from tests.conformance.access.verdicts import KEPT, QUESTIONS, SUPER_USERS, WORLDS, Question, worlds


def answer(index: AclIndex, question: Question) -> str:
    if question.principal in parse_super_users(SUPER_USERS):
        return "A"
    rights = index.rights(question.principal, question.host)
    if question.name is None:
        return "A" if rights.allows_any(question.operation, question.resource_type) else "D"
    operations = rights.operations(question.resource_type, question.name)
    return "A" if operations >> question.operation & 1 else "D"


def test_all_kept_answers_of_kafka_are_those_of_the_index() -> None:
    kept = KEPT.read_text().split()
    assert [len(line) for line in kept] == [QUESTIONS] * WORLDS
    different = []
    for number, (world, expected) in enumerate(zip(worlds(), kept, strict=True)):
        index = AclIndex(world.bindings)
        for question, letter in zip(world.questions, expected, strict=True):
            if answer(index, question) != letter:
                different.append((number, question, letter))
    assert not different, f"{len(different)} answers differ from Kafka's, such as {different[:3]}"


def test_the_kept_answers_allow_and_deny() -> None:
    letters = "".join(KEPT.read_text().split())
    assert min(letters.count("A"), letters.count("D")) > len(letters) // 10
