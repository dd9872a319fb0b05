"""Who of a share group reads what, as Kafka's simple assignor means it: all have work, and no partition has nobody.

A partition may be several members'. Where there are more members than partitions each has one, and partitions have
about equally many; where there are fewer each partition is one member's, and members have about equally many.
"""

from penstock_sequencer.core.state.consumer_group import Partitions


def assign(subscribers: dict[bytes, list[str]], counts: dict[bytes, int]) -> dict[str, Partitions]:
    """By topic: the members that subscribe it, and how many partitions it has; by member what it is to read.

    Each topic goes on with the member behind the one that got the last topic's last partition.
    """
    found: dict[str, Partitions] = {}
    turn = 0
    for topic_id, members in subscribers.items():
        count = counts[topic_id]
        places = max(count, len(members)) if count and members else 0
        for place in range(places):
            member = found.setdefault(members[(turn + place) % len(members)], {})
            member.setdefault(topic_id, []).append(place % count)
        turn += places
    return found
