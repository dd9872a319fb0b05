"""The start offsets of share groups (KIP-932): the first records that a group has not consumed."""

from collections.abc import Mapping
from itertools import groupby

from penstock.cli.kafka.offsets import Partition
from penstock.cli.kafka.session import Session, check_ok


def start_offsets(session: Session, name: str) -> dict[Partition, int]:
    """The start offsets of a share group, without partitions that it has not begun."""
    from penstock.cli.kafka.messages import DescribeShareGroupOffsetsRequest, ask_coordinator

    wanted = DescribeShareGroupOffsetsRequest.RequestGroup(group_id=name, topics=None)
    (group,) = ask_coordinator(session, DescribeShareGroupOffsetsRequest(groups=[wanted]), name).groups
    check_ok(group.error_code, group.error_message, f"group {name!r}")
    return {
        (topic.topic_name, each.partition_index): each.start_offset
        for topic in group.topics
        for each in topic.partitions
        if each.start_offset >= 0
    }


def set_start_offsets(session: Session, name: str, offsets: Mapping[Partition, int]) -> None:
    """Set start offsets of a share group without members."""
    from penstock.cli.kafka.messages import AlterShareGroupOffsetsRequest, ask_coordinator

    topic_of = AlterShareGroupOffsetsRequest.RequestTopic
    topics = [
        topic_of(
            topic_name=topic,
            partitions=[topic_of.RequestPartition(partition_index=place[1], start_offset=at) for place, at in found],
        )
        for topic, found in groupby(sorted(offsets.items()), lambda item: item[0][0])
    ]
    answer = ask_coordinator(session, AlterShareGroupOffsetsRequest(group_id=name, topics=topics), name)
    check_ok(answer.error_code, answer.error_message, f"the offsets of group {name!r} are not set")
    for response in answer.responses:
        for each in response.partitions:
            place = f"{response.topic_name}/{each.partition_index}"
            check_ok(each.error_code, each.error_message, f"the offset in {place} is not set")


def delete_start_offsets(session: Session, name: str, topic: str) -> None:
    """Delete the start offsets of a share group without members in a topic."""
    from penstock.cli.kafka.messages import DeleteShareGroupOffsetsRequest, ask_coordinator

    wanted = [DeleteShareGroupOffsetsRequest.RequestTopic(topic_name=topic)]
    answer = ask_coordinator(session, DeleteShareGroupOffsetsRequest(group_id=name, topics=wanted), name)
    what = f"group {name!r} keeps its offsets in {topic}"
    check_ok(answer.error_code, answer.error_message, what)
    for each in answer.responses:
        check_ok(each.error_code, each.error_message, what)
