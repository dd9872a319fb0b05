"""Any interleaving of members, topics, configurations and time against a naive model of the members' tasks.

The model is the clients themselves. Each has the tasks that it got and has not given back, until it learns that it was
removed. No two of them ever have one active task, except for a client that was removed and does not know. After enough
heartbeats of all clients, each active task has one client, and each client has exactly its target.
"""

import tracemalloc
from collections import Counter
from random import Random
from typing import Any

import pytest

from penstock.contracts.commands import (
    AlterGroupConfigs,
    Command,
    CommitOffsets,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    DeleteTopic,
    OffsetToCommit,
    PerItem,
    RaiseLevel,
    Rejected,
    StreamsMembership,
    TaskOffset,
    Topology,
)
from penstock.contracts.levels import STREAMS_GROUPS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.groups.streams.assignor import Worker, assign
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from tests.unit.sequencer.core.core_streams import CHANGELOG, StreamsClient, subtopology
from tests.unit.sequencer.core.core_world import World, topic_id

STEPS = 120
NAMES = ("one", "two", "three", "four", "five")
PARTITIONS = {"t": 4, "u": 3, CHANGELOG: 4}
TOPOLOGY = Topology(0, [subtopology("0", "t", changelogs=(CHANGELOG,)), subtopology("1", "u")])
OUT = (Rejection.UNKNOWN_MEMBER, Rejection.FENCED_MEMBER_EPOCH, Rejection.UNKNOWN_GROUP)
any_seed = pytest.mark.parametrize("seed", range(12))


class Play:
    """Clients that join, leave, become silent, lose answers and repeat commands."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(level=STREAMS_GROUPS_LEVEL)
        self.log: list[list[list[Command]]] = [[[RaiseLevel(self.world.now_ms, STREAMS_GROUPS_LEVEL)]]]
        self.record()
        self.topics = 0
        self.clients: dict[str, StreamsClient] = {}
        self.group_epoch = 0
        for name in PARTITIONS:
            self.make_topic(name)

    def record(self) -> None:
        entry = self.world.entry

        def recording(*requests: Any) -> Any:
            self.log.append([list(each) for each in requests])
            return entry(*requests)

        self.world.entry = recording  # type: ignore[method-assign]

    def make_topic(self, name: str) -> None:
        self.topics += 1
        self.world.do(CreateTopic(self.world.now_ms, name, topic_id(self.topics), PARTITIONS[name], {}))

    def step(self) -> None:
        actions = (self.beat, self.beat, self.beat, self.beat, self.come, self.come, self.go, self.vanish, self.lose)
        others = (self.change_topics, self.change_configs, self.pass_time, self.pass_time, self.commit, self.double)
        self.random.choice(actions + others)()
        self.check()

    def some(self) -> StreamsClient | None:
        return self.random.choice(list(self.clients.values())) if self.clients else None

    def receive(self, client: StreamsClient, answer: Any) -> None:
        if isinstance(answer, Rejected):
            assert answer.rejection in OUT, answer
            del self.clients[client.name]
        else:
            client.has_reported = True
            self.world.streams.take(client, answer)

    def beat(self) -> None:
        client = self.some()
        if client is not None:
            offsets = [TaskOffset("0", self.random.randrange(4), self.random.randrange(9))]
            self.send(client, task_offsets=offsets if self.random.random() < 0.2 else None)

    def send(self, client: StreamsClient, **given: Any) -> None:
        owned = None if client.has_reported else client.owned
        given = {"instance_id": client.instance_id, "owned": owned, "seen_sequence": self.world.state.sequence} | given
        self.receive(client, self.world.streams.heartbeat(client.name, client.epoch, **given))

    def double(self) -> None:
        """Each entry is journaled twice, and the clients get the second answers."""
        self.world.streams.copies = 2
        self.random.choice([self.beat, self.beat, self.come])()
        self.world.streams.copies = 1

    def come(self) -> None:
        name = self.random.choice(NAMES)
        if name in self.clients:
            return
        client = StreamsClient(name, self.random.choice("pqr"), "i" if name == "five" else None)
        given = {"rebalance_timeout_ms": self.random.choice([3_000, 60_000]), "instance_id": client.instance_id}
        given["seen_sequence"] = self.world.state.sequence
        if self.random.random() < 0.3:
            given["endpoint"] = (client.process, 80)
        answer = self.world.streams.join(name, TOPOLOGY, client.process, **given)
        self.clients[name] = client
        self.receive(client, answer)

    def go(self) -> None:
        client = self.some()
        if client is not None:
            epoch = -2 if client.instance_id is not None and self.random.random() < 0.5 else -1
            answer = self.world.streams.heartbeat(
                client.name, epoch, instance_id=client.instance_id, seen_sequence=self.world.state.sequence
            )
            assert isinstance(answer, StreamsMembership) or answer.rejection in OUT
            del self.clients[client.name]

    def vanish(self) -> None:
        """A client dies; its session ends, or its tasks stay its own for a while."""
        client = self.some()
        if client is not None:
            del self.clients[client.name]
            streams = self.world.group().streams
            if streams is not None and client.name in streams.members and self.random.random() < 0.5:
                self.world.streams.expire(client.name)

    def lose(self) -> None:
        """A heartbeat has its effect, but the client does not get the answer."""
        client = self.some()
        if client is not None:
            owned = None if client.has_reported else client.owned
            self.world.streams.heartbeat(client.name, client.epoch, instance_id=client.instance_id, owned=owned)
            client.has_reported = False  # the client sends everything again after an error

    def change_topics(self) -> None:
        name = self.random.choice([*PARTITIONS])
        if name in self.world.state.topics:
            if self.random.random() < 0.3:
                self.world.do(DeleteTopic(self.world.now_ms, name, bytes(16)))
        else:
            self.make_topic(name)

    def change_configs(self) -> None:
        change = ConfigChange("streams.num.standby.replicas", ConfigOperation.SET, self.random.choice("0112"))
        self.world.do(AlterGroupConfigs(self.world.now_ms, "g", [change]))

    def pass_time(self) -> None:
        self.world.wait(self.random.choice([100, 1_000, 3_000]))

    def commit(self) -> None:
        """An offset is taken only from the owner of its task."""
        client = self.some()
        if client is None:
            return
        number = self.random.randrange(4)
        item = OffsetToCommit("t", number, 1, 0, "")
        command = CommitOffsets(self.world.now_ms, "g", client.epoch, client.name, client.instance_id, [item])
        answer = self.world.do(command)
        streams = self.world.group().streams
        member = None if streams is None else streams.members.get(client.name)
        if isinstance(answer, PerItem) and answer.rejections == [Rejection.NONE] and member is not None:
            owner = streams.tables.active_owners.get("0", {}).get(number) if streams is not None else None
            assert client.epoch == member.epoch or owner == client.name

    def check(self) -> None:
        """No two members have one active task, and no process has a task twice; no epoch goes back."""
        group = self.world.state.groups.get("g")
        members = {} if group is None or group.streams is None else group.streams.members
        present = {name: client for name, client in self.clients.items() if name in members}
        held: Counter[tuple[str, int]] = Counter()
        for name, client in present.items():
            assert client.epoch <= members[name].epoch
            held.update((each, number) for each, numbers in client.active.items() for number in numbers)
            for each, numbers in client.active.items():
                mine = (members[name].active, members[name].revoking_active)
                assert {*numbers} <= {number for epochs in mine for number in epochs.get(each, ())}
        assert not held or max(held.values()) == 1, held
        if group is not None:
            assert group.generation >= self.group_epoch
            self.group_epoch = group.generation

    def settle(self) -> None:
        """All topics exist, and all clients send heartbeats again and again; silent members are removed."""
        for name in PARTITIONS:
            if name not in self.world.state.topics:
                self.make_topic(name)
        streams = self.world.group().streams if "g" in self.world.state.groups else None
        for name in [] if streams is None else list(streams.members):
            if name not in self.clients:
                self.world.streams.expire(name)
        for _ in range(15):
            self.world.wait(1_000)
            for client in list(self.clients.values()):
                self.send(client)
                self.check()
        if self.clients:
            self.check_rest()

    def check_rest(self) -> None:
        """Each task has one active client; standby tasks are where the configuration wants them."""
        group = self.world.group()
        assert group.streams is not None
        assert (group.state, {*group.streams.members}) == ("Stable", {*self.clients})
        active = sorted(
            (each, number)
            for client in self.clients.values()
            for each, numbers in client.active.items()
            for number in numbers
        )
        assert active == [("0", number) for number in range(4)] + [("1", number) for number in range(3)]
        processes = {member.process_id for member in group.streams.members.values()}
        standby = Counter(
            (each, number)
            for client in self.clients.values()
            for each, numbers in client.standby.items()
            for number in numbers
        )
        wanted = min(group.streams.standby_replicas, len(processes) - 1)
        assert standby == Counter({("0", number): wanted for number in range(4) if wanted})


@any_seed
def test_no_task_has_two_members_and_all_have_one_in_the_end(seed: int) -> None:
    play = Play(seed)
    for _ in range(STEPS):
        play.step()
    play.settle()
    check_replay(play)


def check_replay(play: Play) -> None:
    """The same log gives the same bytes, also with a snapshot in between."""
    state = new_state()
    for sequence, entry in enumerate(play.log, 1):
        apply_entry(state, sequence, [list(each) for each in entry])
        if sequence % 40 == 0:
            state = decode_state(encode_state(state))
    assert encode_state(state) == encode_state(play.world.state)


@any_seed
def test_the_assignor_gives_each_task_to_one_member_and_keeps_what_it_can(seed: int) -> None:
    random = Random(seed)
    workers: dict[str, Worker] = {}
    for _ in range(10):
        for number in range(random.randint(1, 7)):
            workers.setdefault(f"m{number}", Worker(random.choice("pqr"), {}, {}, {}))
        for name in list(workers):
            if len(workers) > 1 and random.random() < 0.3:
                del workers[name]
        counts = {"0": random.randint(1, 9), "1": random.randint(0, 5)}
        replicas = random.randint(0, 2)
        found = assign(counts, {"0": None}, workers, replicas)
        active = [task for each in found.values() for task in each.active]
        assert sorted(active) == [(each, number) for each, count in counts.items() for number in range(count)]
        most = -(-len(active) // len(workers))
        assert all(len(each.active) <= most for each in found.values())
        copies = Counter(task for each in found.values() for task in each.standby)
        processes = {worker.process_id for worker in workers.values()}
        wanted = min(replicas, len(processes) - 1)
        assert copies == Counter({("0", number): wanted for number in range(counts["0"]) if wanted})
        for process in processes:
            held = [
                task
                for name, each in found.items()
                if workers[name].process_id == process
                for task in (*each.active, *each.standby)
            ]
            assert len(held) == len(set(held)), "a process has a task once"
        workers = {
            name: Worker(worker.process_id, tasks(found[name].active), tasks(found[name].standby), {})
            for name, worker in workers.items()
        }
        again = assign(counts, {"0": None}, workers, replicas)
        assert {name: sorted(each.active) for name, each in again.items()} == {
            name: sorted(each.active) for name, each in found.items()
        }, "nothing moves without a reason"


def tasks(found: list[tuple[str, int]]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for each, number in sorted(found):
        numbers.setdefault(each, []).append(number)
    return numbers


def test_reported_offsets_count_only_for_tasks_that_need_a_member() -> None:
    offsets = {("0", number): number for number in range(5_000)}
    workers = {name: Worker(name, {"0": [place]}, {}, offsets) for place, name in enumerate(NAMES)}
    tracemalloc.start()
    found = assign({"0": len(NAMES) + 1}, {"0": None}, workers, 0)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(each.active) for each in found.values()] == [2, 1, 1, 1, 1]
    assert peak_bytes < 100_000, "a rank of each offset takes 3 MB"
