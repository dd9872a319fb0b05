"""The assignors of Kafka's coordinators: two for consumer groups (KIP-848), one for share groups (KIP-932).

`uniform` balances how many partitions members have, and moves as few as possible. Topics with the same subscribers are
assigned together; sets with the fewest subscribers come first. The least loaded members get partitions first. `range`
gives each member a contiguous range of each topic, in the order of the members' names. So members have the same
partition numbers of related topics. The work grows with partitions + topics * distinct subscriptions + members *
distinct sets of subscribers.

`simple` is for share groups, where several members may have the same partition. With more members than partitions, each
member has one partition, and partitions have about equally many members. With fewer members, each partition has one
member, and members have about equally many partitions.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.contracts.ids import TopicId
from penstock_sequencer.core.state.consumer_group import Partitions

UNIFORM = "uniform"
RANGE = "range"
ASSIGNORS = (UNIFORM, RANGE)  # the first one is the default, as in Kafka


class Subscriber(msgspec.Struct, frozen=True):
    """A member with the fields that an assignor needs."""

    name: str  # the sort key of `range`: the instance id of a static member, else the member id
    subscription: int  # the place of the member's subscription among all subscriptions
    before: Partitions  # the member's previous target


def assign(
    assignor: str,
    members: Mapping[str, Subscriber],
    subscriptions: Sequence[Iterable[TopicId]],
    partition_counts: Mapping[TopicId, int],
    members_times_sets_max: int,
) -> dict[str, Partitions]:
    """Assign each partition of each subscribed topic to one member; a member's topics are in the order of their ids.

    If members * sets of subscribers exceed the maximum, `uniform` balances each set by itself.
    """
    subscribers = _subscribers(members, subscriptions)
    assigned: dict[str, Partitions] = {member_id: {} for member_id in members}
    if assignor == RANGE:
        _assign_ranges(members, subscribers, partition_counts, assigned)
    else:
        looks_at_loads = len(members) * len(subscribers) <= members_times_sets_max
        _assign_evenly(members, subscribers, partition_counts, assigned, looks_at_loads=looks_at_loads)
    return assigned


def _subscribers(
    members: Mapping[str, Subscriber], subscriptions: Sequence[Iterable[TopicId]]
) -> dict[tuple[str, ...], list[TopicId]]:
    """Sets of subscribers, each with its topics; smallest sets first."""
    by_topic: dict[TopicId, list[int]] = {}
    for place, topic_ids in enumerate(subscriptions):
        for topic_id in topic_ids:
            by_topic.setdefault(topic_id, []).append(place)
    topics: dict[tuple[int, ...], list[TopicId]] = {}
    for topic_id in sorted(by_topic):
        topics.setdefault(tuple(by_topic[topic_id]), []).append(topic_id)
    sets = {_members_of(members, places): topic_ids for places, topic_ids in topics.items()}
    return dict(sorted(sets.items(), key=lambda item: len(item[0])))


def _members_of(members: Mapping[str, Subscriber], places: tuple[int, ...]) -> tuple[str, ...]:
    wanted = dict.fromkeys(places)
    return tuple(member_id for member_id, member in members.items() if member.subscription in wanted)


def _assign_ranges(
    members: Mapping[str, Subscriber],
    subscribers: Mapping[tuple[str, ...], list[TopicId]],
    partition_counts: Mapping[TopicId, int],
    assigned: dict[str, Partitions],
) -> None:
    for member_ids, topic_ids in subscribers.items():
        in_order = sorted(member_ids, key=lambda member_id: (members[member_id].name, member_id))
        for topic_id in topic_ids:
            each, more = divmod(partition_counts[topic_id], len(in_order))
            start = 0
            for place, member_id in enumerate(in_order if each else in_order[:more]):
                end = start + each + (place < more)
                assigned[member_id][topic_id] = list(range(start, end))
                start = end


def _assign_evenly(
    members: Mapping[str, Subscriber],
    subscribers: Mapping[tuple[str, ...], list[TopicId]],
    partition_counts: Mapping[TopicId, int],
    assigned: dict[str, Partitions],
    *,
    looks_at_loads: bool,
) -> None:
    loads = dict.fromkeys(members, 0)
    for member_ids, topic_ids in subscribers.items():
        kept, free = _kept(members, member_ids, topic_ids, partition_counts)
        count = sum(partition_counts[topic_id] for topic_id in topic_ids)
        now = {member_id: loads[member_id] if looks_at_loads else 0 for member_id in member_ids}
        quotas = _quotas(now, {member_id: len(kept[member_id]) for member_id in member_ids}, count)
        _deal(kept, free, quotas)
        for member_id in member_ids:
            loads[member_id] += quotas[member_id]
            for topic_id, number in sorted(kept[member_id]):
                assigned[member_id].setdefault(topic_id, []).append(number)


def _kept(
    members: Mapping[str, Subscriber],
    member_ids: tuple[str, ...],
    topic_ids: list[TopicId],
    partition_counts: Mapping[TopicId, int],
) -> tuple[dict[str, list[tuple[TopicId, int]]], list[tuple[TopicId, int]]]:
    """The partitions that each member keeps, and those without a member."""
    free = {topic_id: dict.fromkeys(range(partition_counts[topic_id])) for topic_id in topic_ids}
    kept: dict[str, list[tuple[TopicId, int]]] = {}
    for member_id in member_ids:
        mine = kept[member_id] = []
        before = members[member_id].before
        for topic_id in topic_ids if len(topic_ids) < len(before) else before:
            unowned = free.get(topic_id, {})
            for number in before.get(topic_id, ()):
                if number in unowned:
                    del unowned[number]
                    mine.append((topic_id, number))
    return kept, [(topic_id, number) for topic_id, numbers in free.items() for number in numbers]


def _quotas(loads: Mapping[str, int], kept: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of `count` partitions each member gets; the least loaded gain first, and loads differ by 1 at most.

    When not all can get one more, the members that can keep more of their partitions get it.
    """
    ascending = sorted(loads.values())
    level, lifted, left = ascending[0], 0, count
    for place, load in enumerate(ascending):
        cost = (load - level) * place
        if cost > left:
            break
        left -= cost
        level, lifted = load, place + 1
    more, left = divmod(left, lifted)
    level += more
    quotas = {member_id: max(level - load, 0) for member_id, load in loads.items()}
    able = [member_id for member_id, load in loads.items() if load <= level]
    able.sort(key=lambda member_id: kept[member_id] <= quotas[member_id])
    for member_id in able[:left]:
        quotas[member_id] += 1
    return quotas


def _deal(
    kept: dict[str, list[tuple[TopicId, int]]], free: list[tuple[TopicId, int]], quotas: Mapping[str, int]
) -> None:
    """Move partitions above a member's quota to members below theirs."""
    for member_id, mine in kept.items():
        free += mine[quotas[member_id] :]
        del mine[quotas[member_id] :]
    dealt = 0
    for member_id, mine in kept.items():
        wanted = quotas[member_id] - len(mine)
        mine += free[dealt : dealt + wanted]
        dealt += wanted
    assert dealt == len(free), "every partition has a member"


def assign_simply(subscribers: dict[TopicId, list[str]], counts: dict[TopicId, int]) -> dict[str, Partitions]:
    """Each share group member's partitions; `subscribers` are the members that subscribe each topic.

    Each topic begins with the member after the one that got the previous topic's last partition.
    """
    found: dict[str, Partitions] = {}
    next_member = 0
    for topic_id, members in subscribers.items():
        count = counts[topic_id]
        places = max(count, len(members)) if count and members else 0
        for place in range(places):
            member = found.setdefault(members[(next_member + place) % len(members)], {})
            member.setdefault(topic_id, []).append(place % count)
        next_member += places
    return found
