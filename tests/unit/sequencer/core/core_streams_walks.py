"""Random steps with a streams group: members join, report their tasks and leave; administrators change the group."""

from random import Random

from penstock.contracts.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    AlterGroupConfigs,
    Command,
    ConfigChange,
    ConfigOperation,
    DeleteGroup,
    ExpireMember,
    InternalTopic,
    OwnedTasks,
    StreamsHeartbeat,
    TaskIds,
    TaskOffset,
    Topology,
)
from penstock_sequencer.core.groups.streams.topology import configure
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.consumer_group import AWAY
from penstock_sequencer.core.state.streams_group import StreamsGroup, StreamsMember
from tests.unit.sequencer.core.core_streams import subtopology

GROUP = "st"
MEMBERS = ["m1", "m2", "m3", "m4"]
SOURCES = {"st-in": 3, "st-other": 2}
CHANGELOG, REPARTITION = "st-changelog", "st-repartition"
CONFIGS = [
    ("streams.num.standby.replicas", "1"),
    ("streams.num.standby.replicas", "0"),
    ("streams.initial.rebalance.delay.ms", "0"),
    ("streams.assignment.interval.ms", "0"),
]


def missing_topics(state: State) -> list[InternalTopic]:
    """The source topics that do not exist, and the topics that gateways would create for the group."""
    streams = _streams(state)
    sources = [InternalTopic(name, count, 0, []) for name, count in SOURCES.items() if name not in state.topics]
    return sources or ([] if streams is None else configure(state, streams.topology).missing)


def streams_command(random: Random, state: State, now_ms: int) -> Command:
    """The next step of one of the group's members or administrators."""
    streams = _streams(state)
    if streams is None or not streams.members or random.random() < 0.15:
        return _join(random, state, now_ms, streams)
    member = random.choice(list(streams.members.values()))
    if member.epoch == AWAY or random.random() < 0.05:
        return _join(random, state, now_ms, streams, member)
    if random.random() < 0.1:
        return _administer(random, state, now_ms, member)
    return _beat(random, now_ms, member)


def _streams(state: State) -> StreamsGroup | None:
    group = state.groups.get(GROUP)
    return None if group is None else group.streams


def _join(
    random: Random, state: State, now_ms: int, streams: StreamsGroup | None, known: StreamsMember | None = None
) -> Command:
    """A new member, or a known one that starts again; mostly with the topology that the group has."""
    name = random.choice(MEMBERS)
    instance_id = "i" if name == "m4" else None
    if known is not None:
        name, instance_id = known.member_id, known.instance_id
    topology = streams.topology if streams is not None and random.random() < 0.95 else _topology(random, state)
    return StreamsHeartbeat(
        now_ms,
        GROUP,
        name,
        JOIN_EPOCH,
        endpoint_epoch=-1,
        instance_id=instance_id,
        rack_id=None,
        rebalance_timeout_ms=random.choice([1_000, 60_000]),
        client_id="client",
        client_host="host",
        topology=topology,
        owned=random.choice([None, OwnedTasks([], [])]),
        process_id=random.choice(["p", "q", name]),
        endpoint=random.choice([None, ("h", 80)]),
        client_tags=[],
        task_offsets=None,
        task_end_offsets=None,
        seen_sequence=random.choice([-1, state.sequence]),
    )


def _topology(random: Random, state: State) -> Topology:
    """Mostly valid: one subtopology with or without a store, or two with a repartition topic between them."""
    names = [*SOURCES] * 9 + [random.choice([*state.topics, "none"])]
    first = random.choice(names)
    changelogs = random.choice([(), (CHANGELOG,)])
    kind = random.random()
    if kind < 0.6:
        return Topology(0, [subtopology("0", first, changelogs=changelogs)])
    repartition = {REPARTITION: random.choice([0, 0, 2])}
    parts = [subtopology("0", first, sinks=(REPARTITION,)), subtopology("1", changelogs=changelogs)]
    if kind < 0.9:
        parts[1] = subtopology("1", random.choice(names), changelogs=changelogs, repartition=repartition)
    return Topology(0, parts)


def _beat(random: Random, now_ms: int, member: StreamsMember) -> Command:
    """A heartbeat of a member, or its farewell; mostly with its tasks, without those that it gives back."""
    owned = OwnedTasks(_ids(member.active), _ids(member.standby))
    if random.random() < 0.1:
        owned = OwnedTasks([], [TaskIds("0", [random.randrange(4)])])
    epochs = [member.epoch] * 10 + [member.previous_epoch, member.epoch + 1, LEAVE_EPOCH]
    epochs += [LEAVE_FOR_A_WHILE_EPOCH] * (member.instance_id is not None)
    offsets = [TaskOffset("0", random.randrange(3), random.randrange(99))] if random.random() < 0.1 else None
    return StreamsHeartbeat(
        now_ms,
        GROUP,
        member.member_id,
        random.choice(epochs),
        endpoint_epoch=-1,
        instance_id=member.instance_id,
        rack_id=random.choice([None] * 20 + ["r"]),
        rebalance_timeout_ms=-1,
        client_id="client",
        client_host="host",
        topology=None,
        owned=random.choice([owned, owned, None]),
        process_id=random.choice([None] * 20 + ["p", "q"]),
        endpoint=None,
        client_tags=None,
        task_offsets=offsets,
        task_end_offsets=offsets,
        shuts_down=random.random() < 0.01,
    )


def _administer(random: Random, state: State, now_ms: int, member: StreamsMember) -> Command:
    name, value = random.choice(CONFIGS)
    changes = [ConfigChange(name, random.choice([ConfigOperation.SET] * 3 + [ConfigOperation.DELETE]), value)]
    return random.choice(
        [
            AlterGroupConfigs(now_ms, GROUP, changes),
            AlterGroupConfigs(now_ms, GROUP, changes),
            ExpireMember(now_ms, GROUP, member.member_id, state.sequence - random.randint(0, 8)),
            DeleteGroup(now_ms, GROUP, state.sequence),
        ]
    )


def _ids(tasks: dict[str, dict[int, int]] | dict[str, list[int]]) -> list[TaskIds]:
    return [TaskIds(name, sorted(numbers)) for name, numbers in sorted(tasks.items()) if numbers]
