"""Groups whose members join, leave, and are killed."""

import functools
from contextlib import ExitStack
from typing import Any

from tests.conformance.driver import Driver
from tests.conformance.scenario import Scenario, Stage, until
from tests.conformance.scenarios.producing import create_topic, fill

PARTITIONS = 6
RECORDS_EACH = 50
POLL_MS = 200


class Members:
    """The members of one group, and the records that they read."""

    def __init__(self, group: str, topic: str) -> None:
        self._join = {"group": group, "topics": [topic]}
        self.drivers: list[Driver] = []
        self.read: list[tuple[int, str]] = []

    def add(self, driver: Driver, **how: str) -> None:
        driver.ask("join", **self._join, **how)
        self.drivers.append(driver)

    def shares(self) -> list[int] | None:
        """The number of partitions of each member, sorted; None while not every partition has exactly one member."""
        held: list[tuple[str, int]] = []
        counts = []
        for driver in self.drivers:  # all at once: some clients lose their session if their polls are far apart
            driver.begin("poll", for_ms=POLL_MS)
        for driver in self.drivers:
            answer: dict[str, Any] = driver.answer()
            self.read += [(partition, value) for partition, _, value in answer["records"]]
            held += [(topic, partition) for topic, partition in answer["assignment"]]
            counts.append(len(answer["assignment"]))
        return sorted(counts) if sorted(held) == sorted(set(held)) and len(held) == PARTITIONS else None

    def settle(self) -> None:
        """Wait until each partition has one member, and all members have the same number."""
        fair = [PARTITIONS // len(self.drivers)] * len(self.drivers)
        until(lambda: self.shares() == fair, f"{fair} partitions per member")

    def read_all(self, written: dict[int, list[str]]) -> None:
        """Wait until the members have read every record at least once."""
        everything = {(partition, value) for partition, values in written.items() for value in values}
        until(lambda: self.shares() and everything <= set(self.read), "every record")


def come_and_go(protocols: list[str], stage: Stage) -> None:
    """Partitions move to new members, and away from members that leave or are killed; all records are read."""
    topic = stage.name("shared")
    create_topic(stage.bootstrap, topic, PARTITIONS)
    written = fill(stage.bootstrap, topic, PARTITIONS, RECORDS_EACH)
    members = Members(stage.name("group"), topic)
    with ExitStack() as stack:
        for protocol in protocols:
            members.add(stack.enter_context(stage.driver()), protocol=protocol)
            members.settle()
        members.drivers.pop(0).ask("leave")
        members.settle()
        members.drivers.pop(0).kill()
        members.settle()
        members.read_all(written)


def hand_over(stage: Stage) -> None:
    """A new member does not get the records of a member that left."""
    topic, group = stage.name("handed"), stage.name("group")
    create_topic(stage.bootstrap, topic, PARTITIONS)
    with stage.driver() as first:
        members = Members(group, topic)
        before = fill(stage.bootstrap, topic, PARTITIONS, RECORDS_EACH)
        members.add(first)
        members.read_all(before)
        first.ask("leave")
    again = fill(stage.bootstrap, topic, PARTITIONS, RECORDS_EACH)
    with stage.driver() as second:
        members = Members(group, topic)
        members.add(second)
        members.read_all(again)
        second.ask("leave")
    assert len(members.read) == PARTITIONS * RECORDS_EACH, f"the second member read {len(members.read)} records"


def static(stage: Stage) -> None:
    """A static member is killed and returns within its session: all members keep their partitions."""
    topic = stage.name("static")
    create_topic(stage.bootstrap, topic, PARTITIONS)
    members = Members(stage.name("group"), topic)
    with stage.driver() as stays, stage.driver() as dies, stage.driver() as comes_back:
        members.add(stays, instance="stays")
        members.add(dies, instance="dies")
        members.settle()
        before = [driver.ask("poll", for_ms=POLL_MS)["assignment"] for driver in members.drivers]
        dies.kill()
        members.drivers.remove(dies)
        members.add(comes_back, instance="dies")
        members.settle()
        after = [driver.ask("poll", for_ms=POLL_MS)["assignment"] for driver in members.drivers]
    assert [sorted(each) for each in after] == [sorted(each) for each in before], f"{before} became {after}"


def all_scenarios() -> list[Scenario]:
    """All scenarios, in the order of the table."""
    return [
        Scenario("group-hand-over", "groups", "A group continues at the offsets of its last member.", hand_over),
        Scenario(
            "group-classic",
            "groups",
            "Members join, leave and are killed: each partition has one member, and every record is read.",
            functools.partial(come_and_go, ["classic"] * 3),
        ),
        Scenario(
            "group-consumer",
            "groups",
            "The same with the group protocol of KIP-848.",
            functools.partial(come_and_go, ["consumer"] * 3),
        ),
        Scenario(
            "group-migration",
            "groups",
            "The same in a group with members of both protocols, which changes from one to the other.",
            functools.partial(come_and_go, ["classic", "consumer", "classic"]),
        ),
        Scenario("group-static", "groups", "A static member that was killed gets its partitions again.", static),
    ]
