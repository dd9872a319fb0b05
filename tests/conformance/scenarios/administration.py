"""Administration: topics, configurations, records and groups are created, described, altered and deleted."""

from tests.conformance.scenario import Scenario, Stage, rejection, until
from tests.conformance.scenarios.producing import create_topic, fill

COUNT = 30


def topics(stage: Stage) -> None:
    """Create, describe, list, create again, delete."""
    topic = stage.name("made")
    with stage.driver() as client:
        client.ask("create_topic", topic=topic, partitions=3, configs={"retention.ms": "86400000"})
        assert client.ask("describe_topic", topic=topic) == {"partitions": 3}
        assert topic in client.ask("list_topics")
        assert "exist" in rejection(client, "create_topic", topic=topic, partitions=1, configs={}).lower()
        client.ask("delete_topic", topic=topic)
        until(lambda: topic not in client.ask("list_topics"), "the topic to disappear")
        assert rejection(client, "delete_topic", topic=topic)
        client.ask("create_topic", topic=topic, partitions=1, configs={})
        assert client.ask("describe_topic", topic=topic) == {"partitions": 1}


def listing(stage: Stage) -> None:
    """List and describe a topic that another client created."""
    topic = stage.name("listed")
    create_topic(stage.bootstrap, topic, 4)
    with stage.driver() as client:
        assert topic in client.ask("list_topics")
        assert client.ask("describe_topic", topic=topic) == {"partitions": 4}


def partitions(stage: Stage) -> None:
    """Add partitions; a smaller number is rejected."""
    topic = stage.name("grown")
    with stage.driver() as client:
        client.ask("create_topic", topic=topic, partitions=1, configs={})
        client.ask("add_partitions", topic=topic, total=4)
        until(lambda: client.ask("describe_topic", topic=topic) == {"partitions": 4}, "four partitions")
        assert rejection(client, "add_partitions", topic=topic, total=2)


def configs(stage: Stage) -> None:
    """Describe, alter, and reset a configuration; invalid ones are rejected."""
    topic = stage.name("configured")
    with stage.driver() as client:
        client.ask("create_topic", topic=topic, partitions=1, configs={"max.message.bytes": "2000"})
        described = client.ask("describe_configs", topic=topic)
        assert (described["max.message.bytes"], described["cleanup.policy"]) == ("2000", "delete")
        client.ask("alter_config", topic=topic, name="max.message.bytes", value="3000")
        assert client.ask("describe_configs", topic=topic)["max.message.bytes"] == "3000"
        client.ask("alter_config", topic=topic, name="max.message.bytes", value=None)
        assert client.ask("describe_configs", topic=topic)["max.message.bytes"] == "1048588"
        assert rejection(client, "alter_config", topic=topic, name="max.message.bytes", value="many")
        assert rejection(client, "create_topic", topic=stage.name("odd"), partitions=1, configs={"no.such": "1"})


def records(stage: Stage) -> None:
    """List offsets, delete records, and check the new log start offset."""
    topic = stage.name("records")
    create_topic(stage.bootstrap, topic, 2)
    fill(stage.bootstrap, topic, 2, COUNT)
    with stage.driver() as client:
        assert client.ask("list_offsets", topic=topic) == {"0": [0, COUNT], "1": [0, COUNT]}
        client.ask("delete_records", topic=topic, partition=0, before=10)
        moved = {"0": [10, COUNT], "1": [0, COUNT]}
        until(lambda: client.ask("list_offsets", topic=topic) == moved, "the log start offset to move")
        assert client.ask("consume", topic=topic, count=2 * COUNT - 10)
        assert rejection(client, "delete_records", topic=topic, partition=0, before=COUNT + 1)


def groups(stage: Stage) -> None:
    """List and describe a group with and without members, and read its offsets."""
    topic, group = stage.name("read"), stage.name("group")
    create_topic(stage.bootstrap, topic, 2)
    fill(stage.bootstrap, topic, 2, COUNT)
    with stage.driver() as client, stage.driver() as member:
        member.ask("join", group=group, topics=[topic])
        read: list[object] = []
        until(lambda: read.extend(member.ask("poll", for_ms=200)["records"]) or len(read) >= 2 * COUNT, "the records")
        assert group in client.ask("list_groups")
        stable = {"state": "STABLE", "members": 1}  # a member whose session expired joins again
        until(lambda: client.ask("describe_group", group=group) == stable, "the member")
        member.ask("leave")
        assert client.ask("describe_group", group=group) == {"state": "EMPTY", "members": 0}
        everything = {"0": COUNT, "1": COUNT}
        assert client.ask("group_offsets", group=group, topic=topic, partitions=2) == everything


def offsets(stage: Stage) -> None:
    """Set a group's offsets, read them, and delete the group."""
    topic, group = stage.name("read"), stage.name("group")
    create_topic(stage.bootstrap, topic, 2)
    fill(stage.bootstrap, topic, 2, COUNT)
    with stage.driver() as client:
        client.ask("set_group_offset", group=group, topic=topic, partition=0, offset=7)
        client.ask("set_group_offset", group=group, topic=topic, partition=1, offset=9)
        assert client.ask("group_offsets", group=group, topic=topic, partitions=2) == {"0": 7, "1": 9}
        client.ask("delete_group", group=group)
        assert group not in client.ask("list_groups")


def offset_deletion(stage: Stage) -> None:
    """Delete one of a group's offsets."""
    topic, group = stage.name("read"), stage.name("group")
    create_topic(stage.bootstrap, topic, 2)
    with stage.driver() as client:
        for partition in (0, 1):
            client.ask("set_group_offset", group=group, topic=topic, partition=partition, offset=0)
        client.ask("delete_group_offset", group=group, topic=topic, partition=1)
        assert client.ask("group_offsets", group=group, topic=topic, partitions=2) == {"0": 0}


def all_scenarios() -> list[Scenario]:
    """All scenarios, in the order of the table."""
    rows = [
        ("admin-listing", "Topics are listed and described.", listing),
        ("admin-topics", "Topics are created, described, listed, deleted and created again.", topics),
        ("admin-partitions", "Topics get more partitions.", partitions),
        ("admin-configs", "Configurations of topics are described, altered and reset.", configs),
        ("admin-records", "Offsets are listed, and records are deleted.", records),
        ("admin-groups", "Groups and their offsets are listed and described.", groups),
        ("admin-group-offsets", "A group's offsets are set, and groups are deleted.", offsets),
        ("admin-offset-deletion", "One of a group's offsets is deleted.", offset_deletion),
    ]
    return [Scenario(name, "administration", promise, run) for name, promise, run in rows]
