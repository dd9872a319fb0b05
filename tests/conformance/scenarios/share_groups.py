"""Share groups (KIP-932): several members process the records of one partition."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.conformance.driver import Driver
from tests.conformance.scenario import TIMEOUT_S, Scenario, Stage, until
from tests.conformance.scenarios.producing import create_topic, fill

RECORDS = 100
POLL_MS = 300
LOCK_MS = 20_000  # longer than the pauses of Java on a busy machine
ACCEPT, RELEASE, REJECT = "accept", "release", "reject"


def begin_early(bootstrap: str, group: str) -> None:
    """Let the group start at the earliest offset, with short locks."""
    wanted = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
    configure(bootstrap, group, wanted)


def configure(bootstrap: str, group: str, configs: Mapping[str, str]) -> None:
    """Set configurations of a group."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def polled(drivers: list[Driver], acknowledge_type: str) -> list[Any]:
    """The records of one poll by all members at once: [offset, value, delivery count], all acknowledged the same."""
    for driver in drivers:
        driver.begin("share_poll", for_ms=POLL_MS, acknowledge_type=acknowledge_type)
    return [record for driver in drivers for record in driver.answer()]


def shared_topic(stage: Stage) -> tuple[str, str, list[str]]:
    """A topic of one partition, a group, and the values in the topic."""
    topic, group = stage.name("topic"), stage.name("group")
    create_topic(stage.bootstrap, topic, 1)
    begin_early(stage.bootstrap, group)
    return topic, group, fill(stage.bootstrap, topic, 1, RECORDS)[0]


def share(stage: Stage) -> None:
    """Members of a share group get each record of a partition once; records of a killed member come again."""
    topic, group, written = shared_topic(stage)
    with ExitStack() as stack:
        dies, *others = [stack.enter_context(stage.driver()) for _ in range(3)]
        dies.ask("share_join", group=group, topic=topic)
        lost: list[Any] = []
        poll = {"for_ms": POLL_MS, "acknowledge_type": ""}
        until(lambda: lost.extend(dies.ask("share_poll", **poll)) or lost, "records for the member that dies")
        dies.kill()
        for driver in others:
            driver.ask("share_join", group=group, topic=topic)
        read: list[Any] = []
        until(lambda: read.extend(polled(others, ACCEPT)) or len(read) >= RECORDS, "every record")
        read += polled(others, ACCEPT)
        for driver in others:
            driver.ask("share_leave")
    assert sorted(value for _, value, _ in read) == sorted(written), f"{len(read)} records were read"
    again = {value for _, value, count in read if count == 2}
    assert again == {value for _, value, _ in lost}, (
        f"{len(again)} records came again, the killed member had {len(lost)}"
    )


def acknowledge(stage: Stage) -> None:
    """Released records are delivered again, five times in all; rejected records are not."""
    topic, group, written = shared_topic(stage)
    counts: dict[str, list[int]] = {}
    with stage.driver() as member:
        member.ask("share_join", group=group, topic=topic)

        def seen(acknowledge_type: str) -> int:
            for _, value, count in polled([member], acknowledge_type):
                counts.setdefault(value, []).append(count)
            return sum(map(len, counts.values()))

        until(lambda: seen(RELEASE) >= 5 * RECORDS, "five deliveries of each record")
        assert seen(RELEASE) == 5 * RECORDS
        assert counts == {value: [1, 2, 3, 4, 5] for value in written}, counts
        fill(stage.bootstrap, topic, 1, RECORDS)
        until(lambda: seen(REJECT) >= 6 * RECORDS, "the next records")
        assert seen(REJECT) == 6 * RECORDS
        member.ask("share_leave")


def all_scenarios() -> list[Scenario]:
    """All scenarios, in the order of the table."""
    rows = [("share-group", share), ("share-acknowledgements", acknowledge)]
    return [Scenario(name, "groups", (run.__doc__ or "").rstrip(), run) for name, run in rows]
