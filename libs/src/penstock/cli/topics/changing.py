"""`penstock topic create`, `alter`, `delete` and `trim`."""

import argparse
from collections.abc import Sequence
from typing import Any

from penstock.cli.kafka.completers import with_topics
from penstock.cli.kafka.configs import alter_configs, parse_settings, read_configs, suggestion
from penstock.cli.kafka.offsets import (
    EARLIEST,
    POSITION_HELP,
    Partition,
    chosen_partitions,
    offsets_at,
    parse_position,
    resolved,
)
from penstock.cli.kafka.session import (
    INVALID_CONFIG,
    TOPIC_ALREADY_EXISTS,
    Session,
    add_verb,
    check_ok,
    code_text,
    confirm,
)
from penstock.cli.output import Done, Listing
from penstock.cli.topics.reading import found_topic, record_counts
from penstock.contracts.configs.topics import TOPIC_CONFIGS
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import is_legal_topic_name


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    create = add_verb(verbs, "create", create_topics, help="create topics")
    create.add_argument("-p", "--partitions", type=int, default=-1, metavar="N", help="partitions (the cluster's own)")
    create.add_argument(
        "-c", "--config", action="append", default=[], metavar="NAME=VALUE", help="a configuration; can be repeated"
    )
    create.add_argument("--if-not-exists", action="store_true", help="an existing topic is no error")
    alter = add_verb(verbs, "alter", alter_topic, help="add partitions to a topic, change its configurations")
    with_topics(alter.add_argument("name", metavar="TOPIC", help="name of the topic"))
    alter.add_argument("-p", "--partitions", type=int, default=0, metavar="N", help="partitions, more than before")
    alter.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="set a configuration; can be repeated"
    )
    alter.add_argument(
        "--unset", action="append", default=[], metavar="NAME", help="give a configuration its default; can be repeated"
    )
    delete = add_verb(
        verbs,
        "delete",
        delete_topics,
        help="delete topics with all records",
        description="Delete topics with all records. A topic with penstock.undelete.window.ms above 0 can come back.",
    )
    trim = add_verb(
        verbs,
        "trim",
        trim_topic,
        help="delete the oldest records of a topic",
        description=f"Delete the records before a position. A position is {POSITION_HELP}.",
    )
    with_topics(trim.add_argument("partition", metavar="TOPIC[/PARTITION]", help="a topic, or one of its partitions"))
    trim.add_argument("--to", required=True, metavar="POSITION", help="the first record that stays")
    create.add_argument("names", nargs="+", metavar="TOPIC", help="names of the topics")
    with_topics(delete.add_argument("names", nargs="+", metavar="TOPIC", help="names of the topics"))
    for verb in (delete, trim):
        verb.add_argument("-y", "--yes", action="store_true", help="do not ask")
    for verb in (create, alter, trim):
        verb.add_argument("--dry-run", action="store_true", help="only check, and show what would change")


def create_topics(arguments: argparse.Namespace, session: Session) -> Listing:
    """Create the topics; those before a wrong one are created."""
    for name in arguments.names:
        if not is_legal_topic_name(name):
            raise Invalid(f"a topic name is 1 to 249 letters, digits, '.', '_' or '-': {name[:250]!r}")
    configs = parse_settings(arguments.config)
    options = {"num_partitions": arguments.partitions, "configs": configs}
    answer = session.admin.create_topics(
        dict.fromkeys(arguments.names, options), validate_only=arguments.dry_run, raise_errors=False
    )
    rows = []
    for topic in answer["topics"]:
        is_there = topic["error_code"] == TOPIC_ALREADY_EXISTS and arguments.if_not_exists
        if topic["error_code"] and not is_there:
            reason = code_text(topic["error_code"], topic.get("error_message"))
            hint = suggestion(configs) if topic["error_code"] == INVALID_CONFIG else ""
            raise Invalid(f"topic {topic['name']!r} is not created: {reason}{hint}")
        result = "exists already" if is_there else "would be created" if arguments.dry_run else "created"
        rows.append({"name": topic["name"], "partitions": topic.get("num_partitions"), "result": result})
    return Listing(rows, "no topic is created")


def alter_topic(arguments: argparse.Namespace, session: Session) -> Listing:
    """Change a topic, and list the values before and after."""
    name, changes, removals = arguments.name, parse_settings(arguments.set), arguments.unset
    if not (changes or removals or arguments.partitions):
        raise Invalid("nothing to change: give --partitions, --set or --unset")
    both = changes.keys() & set(removals)
    if both:
        raise Invalid(f"{min(both)} is in --set and in --unset")
    count = len(found_topic(session, name)["partitions"])
    before = _values(session, name)
    # The cluster accepts the removal of an unknown configuration, as Kafka does, and changes nothing.
    if unknown := [each for each in removals if each not in before and each not in TOPIC_CONFIGS]:
        raise Invalid(f"{unknown[0]} is no topic configuration{suggestion(unknown)}")
    rows: list[dict[str, Any]] = []
    if arguments.partitions:
        answer = session.admin.create_partitions(
            {name: arguments.partitions}, validate_only=arguments.dry_run, raise_errors=False
        )
        for result in answer.results:
            check_ok(result.error_code, result.error_message, f"topic {name!r} gets no more partitions")
        rows.append({"name": "partitions", "before": str(count), "after": str(arguments.partitions)})
    if changes or removals:
        alter_configs(session, "TOPIC", name, changes, removals, is_trial=arguments.dry_run)
        after: dict[str, Any] = {**dict.fromkeys(removals), **changes}
        if not arguments.dry_run:
            after = _values(session, name)
        rows += [{"name": each, "before": before.get(each), "after": after.get(each)} for each in (*changes, *removals)]
    return Listing(rows, "")


def _values(session: Session, name: str) -> dict[str, Any]:
    return {each["name"]: each["value"] for each in read_configs(session, "TOPIC", name)}


def delete_topics(arguments: argparse.Namespace, session: Session) -> Listing:
    """Delete the topics, after a question."""
    topics = [found_topic(session, name) for name in dict.fromkeys(arguments.names)]
    records = sum(record_counts(session, topics).values())
    names = [topic["name"] for topic in topics]
    confirm(f"Delete {', '.join(names)} with {records:,} records?", is_confirmed=arguments.yes)
    answer = session.admin.delete_topics(names, raise_errors=False)
    for topic in answer["topics"]:
        check_ok(topic["error_code"], topic.get("error_message"), f"topic {topic['name']!r} is not deleted")
    return Listing([{"name": name, "result": "deleted"} for name in names], "")


def trim_topic(arguments: argparse.Namespace, session: Session) -> Listing | Done:
    """Delete the records before a position, after a question."""
    partitions = chosen_partitions(session, [arguments.partition])
    name = partitions[0][0]
    earliest = offsets_at(session, partitions, EARLIEST)
    wanted = resolved(session, parse_position(arguments.to), dict(earliest))
    rows = _trim_rows(partitions, earliest, wanted)
    if not rows:
        return Done("there is nothing to delete before that position", {"records": 0})
    if not arguments.dry_run:
        confirm(f"Delete {sum(row['records'] for row in rows):,} records of {name}?", is_confirmed=arguments.yes)
        _delete_before(session, {(name, row["partition"]): row["after_offset"] for row in rows})
    return Listing(rows, "")


def _trim_rows(
    partitions: Sequence[Partition], earliest: dict[Partition, int], wanted: dict[Partition, int]
) -> list[dict[str, Any]]:
    return [
        {
            "partition": each[1],
            "before_offset": earliest[each],
            "after_offset": wanted[each],
            "records": wanted[each] - earliest[each],
        }
        for each in partitions
        if wanted[each] > earliest[each]
    ]


def _delete_before(session: Session, offsets: dict[Partition, int]) -> None:
    from kafka import TopicPartition

    session.admin.delete_records({TopicPartition(*each): offset for each, offset in offsets.items()})
