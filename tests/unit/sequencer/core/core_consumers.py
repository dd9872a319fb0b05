"""Consumer groups in a `World`: members that do as clients do, by their heartbeats."""

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
    """A consumer as it sees itself: what it was told it has, and what it has not given back yet."""

    name: str
    instance_id: str | None = None
    epoch: int = 0
    owned: Held = {}
    has_reported: bool = True  # what it owns, since that changed


def held(assignment: list[TopicPartitions]) -> Held:
    return {each.topic_id: list(each.partitions) for each in assignment}


class ConsumerGroups:
    """Heartbeats of members of the group "g"; the world must be at the level of consumer groups."""

    def __init__(self, world: Machine) -> None:
        self._world = world
        self.copies = 1  # of each heartbeat that is journaled; the last one is answered

    def heartbeat(self, member_id: str, epoch: int, **said: Any) -> Any:
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
        command = ConsumerHeartbeat(self._world.now_ms, member_id=member_id, member_epoch=epoch, **(given | said))
        return self.send(command)

    def send(self, command: ConsumerHeartbeat) -> Any:
        """As gateways do: asked first, journaled only if that says so; and what is asked is what is answered."""
        asked = queries.QUERIES["consumer_heartbeat"](self._world.state, ConsumerHeartbeatQuery(0, command)).outcome
        if asked is not None:
            return asked
        return [self._world.do(command) for _ in range(self.copies)][-1]

    def join(self, member_id: str, *topics: str, **said: Any) -> Any:
        given: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topics": list(topics), "owned": []}
        return self.heartbeat(member_id, 0, **(given | said))

    def leave(self, member_id: str, **said: Any) -> Any:
        return self.heartbeat(member_id, -1, **said)

    def expire(self, member_id: str) -> Any:
        consumer = self._world.group().consumer
        assert consumer is not None
        sequence = consumer.members[member_id].active_sequence
        return self._world.do(ExpireMember(self._world.now_ms, "g", member_id, sequence))

    def member(self, member_id: str) -> Any:
        consumer = self._world.group().consumer
        assert consumer is not None
        return consumer.members[member_id]

    # Clients that do as librdkafka and the Java client do.

    def client(self, name: str, *topics: str, instance_id: str | None = None, **said: Any) -> Client:
        client = Client(name, instance_id)
        self.take(client, self.join(name, *topics, instance_id=instance_id, **said))
        return client

    def beat(self, client: Client) -> Any:
        """A heartbeat; the client tells what it owns if that has changed since it last did."""
        owned = None
        if not client.has_reported:
            owned = [TopicPartitions(topic, numbers) for topic, numbers in client.owned.items()]
        answer = self.heartbeat(client.name, client.epoch, instance_id=client.instance_id, owned=owned)
        if isinstance(answer, ConsumerMembership):
            client.has_reported = True
            self.take(client, answer)
        return answer

    def take(self, client: Client, answer: Any) -> None:
        """The client gives back at once what it is not to have any more, and takes what it is given."""
        assert isinstance(answer, ConsumerMembership), answer
        client.epoch = answer.member_epoch
        if answer.assignment is not None and held(answer.assignment) != client.owned:
            client.owned, client.has_reported = held(answer.assignment), False

    def settle(self, *clients: Client) -> None:
        """Heartbeats of all, in turn, until nobody is told anything new and the group is stable."""
        for _ in range(20):
            before = [(each.epoch, each.owned, each.has_reported) for each in clients]
            for client in clients:
                answer = self.beat(client)
                assert not isinstance(answer, Rejected), answer
            if before == [(each.epoch, each.owned, each.has_reported) for each in clients]:
                return
        raise AssertionError("the group does not come to rest")


def numbers(client: Client, number: int = 1) -> list[int]:
    """The partitions of a topic that the client has."""
    return client.owned.get(topic_id(number), [])
