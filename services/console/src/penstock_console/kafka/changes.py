"""Changes of topics and groups, made as the user, with the functions of the command line."""

from argparse import Namespace
from collections.abc import Mapping, Sequence

import msgspec

from penstock.cli.groups.finding import read_group
from penstock.cli.groups.members import Group
from penstock.cli.groups.resetting import delete_groups, reset_offsets
from penstock.cli.kafka.configs import alter_configs, read_configs
from penstock.cli.kafka.session import Session
from penstock.cli.topics.changing import alter_topic, create_topics, delete_topics
from penstock.cli.transactions.txn import abort_transaction

TOPIC = "TOPIC"


class ConfigEntry(msgspec.Struct, frozen=True):
    """A configuration of a topic and where its value comes from."""

    name: str
    value: str | None
    source: str
    is_changed: bool


class OffsetMove(msgspec.Struct, frozen=True):
    """The offset of a group in a partition before and after a reset."""

    topic: str
    partition: int
    before_offset: int | None
    after_offset: int


def topic_configs(session: Session, name: str) -> list[ConfigEntry]:
    """All configurations of a topic, by name."""
    found = read_configs(session, TOPIC, name, only_changed=False)
    changed = {each["name"] for each in read_configs(session, TOPIC, name, only_changed=True)}
    return [ConfigEntry(each["name"], each["value"], each["source"], each["name"] in changed) for each in found]


def set_config(session: Session, topic: str, name: str, value: str) -> None:
    """Set a configuration of a topic; "" gives it its default. `Invalid` with the reason of the cluster."""
    if value:
        alter_configs(session, TOPIC, topic, {name: value}, [])
    else:
        alter_configs(session, TOPIC, topic, {}, [name])


def create_topic(session: Session, name: str, partitions: int, configs: Sequence[str]) -> None:
    """Create a topic; configurations are NAME=VALUE."""
    arguments = Namespace(names=[name], partitions=partitions, config=list(configs), if_not_exists=False, dry_run=False)
    create_topics(arguments, session)


def add_partitions(session: Session, topic: str, count: int) -> None:
    """Give a topic more partitions."""
    alter_topic(Namespace(name=topic, partitions=count, set=[], unset=[], dry_run=False), session)


def delete_topic(session: Session, name: str) -> None:
    """Delete a topic."""
    delete_topics(Namespace(names=[name], yes=True), session)


def describe_group(session: Session, name: str) -> Group:
    """A group with its members."""
    return read_group(session, name)


def preview_reset(session: Session, group: str, position: str, topics: Sequence[str]) -> list[OffsetMove]:
    """The offsets that a reset would set; nothing is changed."""
    return _reset(session, group, position, topics, is_trial=True)


def reset(session: Session, group: str, position: str, topics: Sequence[str]) -> list[OffsetMove]:
    """Move a group without members to a position, in some of its topics or in all."""
    return _reset(session, group, position, topics, is_trial=False)


def _reset(session: Session, group: str, position: str, topics: Sequence[str], *, is_trial: bool) -> list[OffsetMove]:
    arguments = Namespace(name=group, to=position, topic=list(topics), dry_run=is_trial, yes=True)
    rows: Sequence[Mapping[str, object]] = reset_offsets(arguments, session).rows
    return [msgspec.convert({name: row[name] for name in OffsetMove.__struct_fields__}, OffsetMove) for row in rows]


def delete_group(session: Session, name: str) -> None:
    """Delete a group without members, with its offsets."""
    delete_groups(Namespace(names=[name], topic="", yes=True), session)


def abort(session: Session, transactional_id: str) -> None:
    """Abort an open transaction."""
    abort_transaction(Namespace(name=transactional_id, yes=True), session)
