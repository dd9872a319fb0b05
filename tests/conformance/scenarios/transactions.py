"""Consume, transform, produce exactly once, with a kill of the client at every step."""

import functools
from collections import Counter

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.conformance.driver import ClientError, Driver
from tests.conformance.scenario import TIMEOUT_S, Scenario, Stage, until
from tests.conformance.scenarios.producing import create_topic, fill
from tests.testkit.loads.ledger import QUIET

STEPS = {
    "begun": "after it began a transaction",
    "sent": "after it sent a transaction's records",
    "offsets": "after it added offsets to a transaction",
    "committing": "while it commits a transaction",
    "committed": "after it committed a transaction",
}
PARTITIONS = 2
RECORDS_EACH = 20
BATCH_MAX = 10


def read_committed(bootstrap: str, topic: str) -> dict[int, list[str]]:
    """Values by partition, up to the last stable offsets."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-committed",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    read: dict[int, list[str]] = {each: [] for each in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        reader.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            message = reader.poll(TIMEOUT_S)
            assert message is not None, f"no end of partitions {set(read) - ended}"
            error = message.error()
            if error is None:
                read[message.partition()].append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(str(error))
    finally:
        reader.close()
    return read


def check_exactly_once(read: dict[int, list[str]], expected: dict[int, list[str]]) -> None:
    """Assert that each record of each partition was read once, in order, and that there are no others."""
    for partition, values in expected.items():
        found = read[partition]
        twice = {value: count for value, count in Counter(found).items() if count > 1}
        assert not twice, f"partition {partition} has records twice: {twice}"
        assert not set(values) - set(found), f"partition {partition} lacks {set(values) - set(found)}"
        assert found == values, f"partition {partition} has {found}"


class Pipeline:
    """A copy of a topic by clients with one transactional id, one client after the other."""

    def __init__(self, stage: Stage) -> None:
        self._bootstrap = stage.bootstrap
        self.group = stage.name("group")
        self.topics = {"source": stage.name("source"), "target": stage.name("target")}
        for topic in self.topics.values():
            create_topic(stage.bootstrap, topic, PARTITIONS)
        written = fill(stage.bootstrap, self.topics["source"], PARTITIONS, RECORDS_EACH)
        self._expected = {partition: [f"{value}'" for value in values] for partition, values in written.items()}
        self._id = stage.name("id")

    def start(self, client: Driver) -> None:
        client.ask("transform_start", **self.topics, group=self.group, transactional_id=self._id)

    def until_records(self, client: Driver, **how: object) -> None:
        """Run transactions until one has records; the member may wait for its partitions first."""
        until(lambda: client.ask("transform_once", batch_max=BATCH_MAX, **how), "a transaction with records")

    def until_step(self, client: Driver, step: str) -> None:
        """Return when the client holds at `step` of a transaction."""

        def holds() -> bool:
            try:
                client.ask_until(step, "transform_once", batch_max=BATCH_MAX)
            except ClientError as error:
                if "{'ok': 0}" in str(error):  # no records yet
                    return False
                raise
            return True

        until(holds, f"the client to hold at {step!r}")

    def committed(self) -> dict[int, int]:
        """The group's committed offsets."""
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        try:
            asked = [TopicPartition(self.topics["source"], each) for each in range(PARTITIONS)]
            return {each.partition: max(each.offset, 0) for each in reader.committed(asked, timeout=60)}
        finally:
            reader.close()

    def finish(self, client: Driver) -> None:
        """Transform the remaining records, and check the target topic."""
        ends = dict.fromkeys(range(PARTITIONS), RECORDS_EACH)

        def at_the_end() -> bool:
            client.ask("transform_once", batch_max=BATCH_MAX)
            return self.committed() == ends

        until(at_the_end, "the end of the transformation")
        self.check()

    def check(self) -> None:
        """Check the target topic with read_committed, by another client."""
        check_exactly_once(read_committed(self._bootstrap, self.topics["target"]), self._expected)

    def check_by(self, client: Driver) -> None:
        """Check the target topic with read_committed, by the client itself."""
        count = PARTITIONS * RECORDS_EACH
        read = client.ask("consume", topic=self.topics["target"], count=count, committed=True)
        for partition, expected in self._expected.items():
            assert [each[3] for each in read if each[0] == partition] == expected


def crash(step: str, stage: Stage) -> None:
    """Kill the client in its second transaction; its successor continues."""
    pipeline = Pipeline(stage)
    with stage.driver() as client:
        pipeline.start(client)
        pipeline.until_records(client)
        pipeline.until_step(client, step)
        client.kill()
    with stage.driver() as successor:
        pipeline.start(successor)
        pipeline.finish(successor)
        pipeline.check_by(successor)


def abort(stage: Stage) -> None:
    """Abort transactions: their records and offsets have no effect."""
    pipeline = Pipeline(stage)
    with stage.driver() as client:
        pipeline.start(client)
        pipeline.until_records(client, abort=True)
        assert set(pipeline.committed().values()) == {0}
        pipeline.until_records(client)
        pipeline.until_records(client, abort=True)
        pipeline.finish(client)
        pipeline.check_by(client)


def fencing(stage: Stage) -> None:
    """A client whose transactional id is used by another one can no longer commit."""
    pipeline = Pipeline(stage)
    with stage.driver() as first, stage.driver() as second:
        pipeline.start(first)
        pipeline.until_step(first, "offsets")
        pipeline.start(second)
        first.resume()
        try:
            answer = first.answer()
        except ClientError as error:
            assert any(word in str(error).upper() for word in ("FENCED", "EPOCH")), error
        else:
            raise AssertionError(f"the fenced client committed {answer} records")
        first.kill()
        pipeline.finish(second)


def all_scenarios() -> list[Scenario]:
    """All scenarios, in the order of the table."""
    crashes = [
        Scenario(
            f"transaction-crash-{step}",
            "transactions",
            f"Consume-transform-produce is exactly once if the client is killed {when}, and another one continues.",
            functools.partial(crash, step),
        )
        for step, when in STEPS.items()
    ]
    return [
        *crashes,
        Scenario("transaction-abort", "transactions", "No record of an aborted transaction is read.", abort),
        Scenario("transaction-fencing", "transactions", "A fenced client cannot commit.", fencing),
    ]
