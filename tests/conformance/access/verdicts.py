"""Random bindings and questions, and the answers of Kafka's StandardAuthorizer to them.

`python -m tests.conformance.access.verdicts` asks Kafka's own class and keeps its answers in kafka_verdicts.txt: one
line for each world, one letter for each question. The unit tests compare them with the index of bindings.
"""

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tests.conformance.provision import JAVA_OPTIONS, jars, made, program, run

KEPT = Path(__file__).parent / "kafka_verdicts.txt"
SOURCE = Path(__file__).parent / "AclOracle.java"
SEED, WORLDS, QUESTIONS = 16, 500, 40
SUPER_USERS = "User:root;User:operator"
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
NAMES = ["*", "a", "ab", "abc", "abd", "b", "ba", "hardcode"]
ASKED_NAMES = ["a", "ab", "abc", "abcd", "abd", "b", "ba", "c", "hardcode", "aé"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID]
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
# Kafka's question for any resource does not count implied operations, so it is asked about these only.
ANY_OPERATIONS = [AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE]


class Question(msgspec.Struct, frozen=True):
    """A question for an authorizer; without a name it is about any resource of the type."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None


class World(msgspec.Struct, frozen=True):
    """Bindings, and questions about them."""

    bindings: list[AclBinding]
    questions: list[Question]


def worlds() -> Iterator[World]:
    """The same worlds in each run."""
    chance = random.Random(SEED)
    for _ in range(WORLDS):
        bindings = {_binding(chance): None for _ in range(chance.randrange(14))}
        yield World(list(bindings), [_question(chance) for _ in range(QUESTIONS)])


def _binding(chance: random.Random) -> AclBinding:
    return AclBinding(
        chance.choice(TYPES[: chance.choice((1, 2, 4))]),
        chance.choice(NAMES),
        chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS),
        chance.choice((AclOperation.ALL, *OPERATIONS[:8])),
        chance.choice((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY)),
    )


def _question(chance: random.Random) -> Question:
    principal = chance.choice(("User:alice", "User:alice", "User:bob", "User:carol", "User:root"))
    host = chance.choice(("10.0.0.1", "10.0.0.1", "10.0.0.3"))
    resource_type = chance.choice(TYPES[: chance.choice((1, 2, 4))])
    if not chance.randrange(5):
        return Question(principal, host, chance.choice(ANY_OPERATIONS), resource_type, None)
    return Question(principal, host, chance.choice(OPERATIONS[:8]), resource_type, chance.choice(ASKED_NAMES))


def ask_kafka() -> list[str]:
    """The answers of Kafka's authorizer: A for allowed and D for denied, one line for each world."""
    libraries = jars()

    def make(folder: Path) -> None:
        (compiler,) = libraries.glob("ecj-*.jar")
        class_path = ":".join(str(jar) for jar in sorted(libraries.glob("*.jar")))
        options = ["-17", "-nowarn", "-cp", class_path, "-d", str(folder)]
        run([program("java"), "-jar", str(compiler), *options, str(SOURCE)], folder)

    classes = made("acl-oracle", SOURCE.read_text() + str(libraries), make)
    class_path = ":".join(map(str, [classes, *sorted(libraries.glob("*.jar"))]))
    lines = [
        json.dumps(
            {
                "super_users": SUPER_USERS,
                "bindings": msgspec.to_builtins(world.bindings),
                "questions": [
                    [each.principal, each.host, each.operation, each.resource_type, each.name]
                    for each in world.questions
                ],
            }
        )
        for world in worlds()
    ]
    done = subprocess.run(
        [program("java"), *JAVA_OPTIONS, "-cp", class_path, "AclOracle"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.split()


if __name__ == "__main__":
    answers = ask_kafka()
    KEPT.write_text("\n".join(answers) + "\n")
    print(f"kept {sum(map(len, answers))} answers of Kafka, {sum(each.count('A') for each in answers)} allow")
