"""Streams groups in a `World`: members that send heartbeats as Kafka Streams does."""

from typing import Any

import msgspec

from penstock.contracts.commands import (
    ExpireMember,
    InternalTopic,
    OwnedTasks,
    Rejected,
    StreamsHeartbeat,
    StreamsMembership,
    Subtopology,
    TaskIds,
    Topology,
)
from penstock.contracts.queries.streams_groups import StreamsHeartbeatQuery
from penstock_sequencer.core import queries
from penstock_sequencer.core.groups.streams.group import streams_of
from penstock_sequencer.core.state.streams_group import StreamsGroup, StreamsMember
from tests.unit.sequencer.core.core_machine import Machine

REBALANCE_TIMEOUT_MS = 60_000
CHANGELOG = "g-store-changelog"
Numbers = dict[str, list[int]]


def subtopology(
    subtopology_id: str = "0",
    *sources: str,
    sinks: tuple[str, ...] = (),
    changelogs: tuple[str, ...] = (),
    repartition: dict[str, int] | None = None,
    copartition: tuple[list[str], ...] = (),
) -> Subtopology:
    """A subtopology; `repartition` has the numbers of partitions of its repartition sources, 0 for undecided."""
    internal = [InternalTopic(name, count, 0, []) for name, count in sorted((repartition or {}).items())]
    logs = [InternalTopic(name, 0, 0, [("cleanup.policy", "compact")]) for name in changelogs]
    return Subtopology(subtopology_id, list(sources), list(sinks), logs, internal, list(copartition))


STATELESS = Topology(0, [subtopology("0", "t")])
STATEFUL = Topology(0, [subtopology("0", "t", changelogs=(CHANGELOG,))])


class StreamsClient(msgspec.Struct, eq=False):
    """A thread of an application with the tasks that it knows to be its own."""

    name: str
    process: str
    instance_id: str | None = None
    epoch: int = 0
    active: Numbers = {}
    standby: Numbers = {}
    has_reported: bool = True  # whether it has sent its tasks since they changed
    topology: Topology = STATEFUL

    @property
    def owned(self) -> OwnedTasks:
        return OwnedTasks(ids(self.active), ids(self.standby))


def ids(tasks: Numbers) -> list[TaskIds]:
    return [TaskIds(subtopology_id, numbers) for subtopology_id, numbers in sorted(tasks.items())]


def numbers(tasks: list[TaskIds]) -> Numbers:
    return {each.subtopology_id: list(each.partitions) for each in tasks}


class StreamsGroups:
    """Heartbeats of members of the group "g"; the world must be at the level of streams groups."""

    def __init__(self, world: Machine) -> None:
        self._world = world
        self.copies = 1  # of each heartbeat that is journaled; the last one is answered

    def heartbeat(self, member_id: str, epoch: int, **changes: Any) -> Any:
        given: dict[str, Any] = {
            "group_id": "g",
            "endpoint_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "client_id": "client",
            "client_host": "/host",
            "topology": None,
            "owned": None,
            "process_id": None,
            "endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
        }
        return self.send(
            StreamsHeartbeat(self._world.now_ms, member_id=member_id, member_epoch=epoch, **(given | changes))
        )

    def send(self, command: StreamsHeartbeat) -> Any:
        """Send it as gateways do: query first, journal only if the query demands it; the query may be the answer."""
        asked = queries.QUERIES["streams_heartbeat"](self._world.state, StreamsHeartbeatQuery(0, command)).outcome
        if asked is not None:
            return asked
        return [self._world.do(command) for _ in range(self.copies)][-1]

    def join(self, member_id: str, topology: Topology = STATEFUL, process: str = "", **changes: Any) -> Any:
        given: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "topology": topology,
            "process_id": process or member_id,
            "owned": OwnedTasks([], []),
            "client_tags": [],
        }
        return self.heartbeat(member_id, 0, **(given | changes))

    def leave(self, member_id: str, **changes: Any) -> Any:
        return self.heartbeat(member_id, -1, **changes)

    def expire(self, member_id: str) -> Any:
        return self._world.do(ExpireMember(self._world.now_ms, "g", member_id, self.member(member_id).active_sequence))

    @property
    def group(self) -> StreamsGroup:
        return streams_of(self._world.group())

    def member(self, member_id: str) -> StreamsMember:
        return self.group.members[member_id]

    # Clients that act like the Java client.

    def client(self, name: str, process: str = "", instance_id: str | None = None, **changes: Any) -> StreamsClient:
        client = StreamsClient(name, process or name, instance_id, topology=changes.pop("topology", STATEFUL))
        answer = self.join(name, client.topology, client.process, instance_id=instance_id, **changes)
        self.take(client, answer)
        return client

    def beat(self, client: StreamsClient, **changes: Any) -> Any:
        """Send a heartbeat; the client reports its tasks if they have changed since its last report."""
        owned = None if client.has_reported else client.owned
        given = {"instance_id": client.instance_id, "owned": owned} | changes
        answer = self.heartbeat(client.name, client.epoch, **given)
        if isinstance(answer, StreamsMembership):
            client.has_reported = True
            self.take(client, answer)
        return answer

    def take(self, client: StreamsClient, answer: Any) -> None:
        """The client accepts its tasks, and gives other ones back at once."""
        assert isinstance(answer, StreamsMembership), answer
        client.epoch = answer.member_epoch
        if answer.tasks is not None and answer.tasks != client.owned:
            client.active, client.standby = numbers(answer.tasks.active), numbers(answer.tasks.standby)
            client.has_reported = False

    def settle(self, *clients: StreamsClient) -> None:
        """All clients send heartbeats, in turn, second by second, until the group is stable."""
        for _ in range(30):
            self._world.wait(1_000)
            for client in clients:
                answer = self.beat(client)
                assert not isinstance(answer, Rejected), answer
            if self._world.group().state == "Stable" and all(client.has_reported for client in clients):
                return
        raise AssertionError("the tasks keep changing")
