"""Consumer groups in a `World`: members that send heartbeats as clients do."""

from typing import Any

import msgspec

from penstock.contracts.commands import (
    ConsumerHeartbeat,
    ConsumerMembership,
    ExpireMember,
    Rejected,
    TopicPartitions,
)
from penstock.contracts.queries.consumer_groups import ConsumerHeartbeatQuery
from penstock_sequencer.core import queries
from tests.unit.sequencer.core.core_machine import Machine, topic_id

REBALANCE_TIMEOUT_MS = 60_000
Held = dict[bytes, list[int]]


class Client(msgspec.Struct, eq=False):
    """A consumer with the state that it knows: its assignment, and the partitions that it has not given back yet."""

    name: str
    instance_id: str | None = None
    epoch: int = 0
    owned: Held = {}
    has_reported: bool = True  # whether it has sent its partitions since they changed


def held(assignment: list[TopicPartitions]) -> Held:
    return {each.topic_id: list(each.partitions) for each in assignment}


class ConsumerGroups:
    """Heartbeats of members of the group "g"; the world must be at the level of consumer groups."""

    def __init__(self, world: Machine) -> None:
        self._world = world
        self.copies = 1  # of each heartbeat that is journaled; the last one is answered

    def heartbeat(self, member_id: str, epoch: int, **changes: Any) -> Any:
        given: dict[str, Any] = {
            "group_id": "g",
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "client_id": "client",
            "client_host": "/host",
            "topics": None,
            "pattern": None,
            "assignor": None,
            "owned": None,
        }
        command = ConsumerHeartbeat(self._world.now_ms, member_id=member_id, member_epoch=epoch, **(given | changes))
        return self.send(command)

    def send(self, command: ConsumerHeartbeat) -> Any:
        """Send it as gateways do: query first, journal only if the query demands it; the query may be the answer."""
        asked = queries.QUERIES["consumer_heartbeat"](self._world.state, ConsumerHeartbeatQuery(0, command)).outcome
        if asked is not None:
            return asked
        return [self._world.do(command) for _ in range(self.copies)][-1]

    def join(self, member_id: str, *topics: str, **changes: Any) -> Any:
        given: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topics": list(topics), "owned": []}
        return self.heartbeat(member_id, 0, **(given | changes))

    def leave(self, member_id: str, **changes: Any) -> Any:
        return self.heartbeat(member_id, -1, **changes)

    def expire(self, member_id: str) -> Any:
        consumer = self._world.group().consumer
        assert consumer is not None
        sequence = consumer.members[member_id].active_sequence
        return self._world.do(ExpireMember(self._world.now_ms, "g", member_id, sequence))

    def member(self, member_id: str) -> Any:
        consumer = self._world.group().consumer
        assert consumer is not None
        return consumer.members[member_id]

    # Clients that act like librdkafka and the Java client.

    def client(self, name: str, *topics: str, instance_id: str | None = None, **changes: Any) -> Client:
        client = Client(name, instance_id)
        self.take(client, self.join(name, *topics, instance_id=instance_id, **changes))
        return client

    def beat(self, client: Client) -> Any:
        """Send a heartbeat; the client reports its partitions if they have changed since its last report."""
        owned = None
        if not client.has_reported:
            owned = [TopicPartitions(topic, numbers) for topic, numbers in client.owned.items()]
        answer = self.heartbeat(client.name, client.epoch, instance_id=client.instance_id, owned=owned)
        if isinstance(answer, ConsumerMembership):
            client.has_reported = True
            self.take(client, answer)
        return answer

    def take(self, client: Client, answer: Any) -> None:
        """The client accepts its assignment, and gives other partitions back at once."""
        assert isinstance(answer, ConsumerMembership), answer
        client.epoch = answer.member_epoch
        if answer.assignment is not None and held(answer.assignment) != client.owned:
            client.owned, client.has_reported = held(answer.assignment), False

    def settle(self, *clients: Client) -> None:
        """All clients send heartbeats, in turn, until no assignment changes and the group is stable."""
        for _ in range(20):
            before = [(each.epoch, each.owned, each.has_reported) for each in clients]
            for client in clients:
                answer = self.beat(client)
                assert not isinstance(answer, Rejected), answer
            if before == [(each.epoch, each.owned, each.has_reported) for each in clients]:
                return
        raise AssertionError("the assignments keep changing")


def numbers(client: Client, number: int = 1) -> list[int]:
    """The client's partitions of a topic."""
    return client.owned.get(topic_id(number), [])
