"""The changes behind forms and POST requests, with the structs of their bodies. `routes.py` has their paths."""

from typing import Literal

import msgspec

from penstock_console.kafka import changes, security as kafka_security
from penstock_console.kafka.records import NewRecord, Written, write
from penstock_console.pages import resetting, security
from penstock_console.pages.context import Request, Sources

Mechanism = Literal["", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Done(msgspec.Struct, frozen=True):
    """A change that was made, in words."""

    message: str


class Nothing(msgspec.Struct, frozen=True):
    """No parameters."""


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create; `partitions` -1 is the default of the cluster, `configs` are lines NAME=VALUE."""

    name: str
    partitions: int = -1
    configs: str = ""


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration and its new value; "" gives it the default."""

    name: str
    value: str = ""


class MorePartitions(msgspec.Struct, frozen=True, kw_only=True):
    """The new number of partitions, larger than before."""

    count: int


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The name once more, so that nothing is deleted by a slip."""

    confirm: str


class RecordForm(msgspec.Struct, frozen=True, kw_only=True):
    """A record to write; `partition` -1 lets the partitioner choose, `headers` are lines NAME=VALUE."""

    partition: int = -1
    key: str = ""
    value: str = ""
    headers: str = ""
    is_tombstone: bool = False


class NewUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user to create; "" as the mechanism is each. A form has the password `again`."""

    name: str
    password: str
    again: str | None = None
    mechanism: Mechanism = ""

    def __repr__(self) -> str:
        return f"NewUser({self.name!r})"


class NewPassword(msgspec.Struct, frozen=True, kw_only=True):
    """A new password; "" as the mechanism is each. A form has the password `again`."""

    password: str
    again: str | None = None
    mechanism: Mechanism = ""

    def __repr__(self) -> str:
        return "NewPassword()"


async def create_topic(sources: Sources, request: Request, body: NewTopic) -> Done:
    """Create a topic."""
    configs = _lines(body.configs)
    await sources.kafka.call(
        request.login, lambda session: changes.create_topic(session, body.name, body.partitions, configs)
    )
    return Done(f"topic {body.name} is created")


async def set_config(sources: Sources, request: Request, name: str, body: ConfigChange) -> Done:
    """Set a configuration of a topic."""
    await sources.kafka.call(request.login, lambda session: changes.set_config(session, name, body.name, body.value))
    return Done(f"{body.name} of {name} is {body.value or 'the default'}")


async def add_partitions(sources: Sources, request: Request, name: str, body: MorePartitions) -> Done:
    """Give a topic more partitions."""
    await sources.kafka.call(request.login, lambda session: changes.add_partitions(session, name, body.count))
    return Done(f"topic {name} has {body.count} partitions")


async def delete_topic(sources: Sources, request: Request, name: str, body: Confirmation) -> Done:
    """Delete a topic."""
    _check_confirmed(name, body)
    await sources.kafka.call(request.login, lambda session: changes.delete_topic(session, name))
    return Done(f"topic {name} is deleted")


async def write_record(sources: Sources, request: Request, name: str, body: RecordForm) -> Written:
    """Write one record."""
    record = NewRecord(
        topic=name,
        partition=None if body.partition < 0 else body.partition,
        key=body.key,
        value=body.value,
        is_tombstone=body.is_tombstone,
        headers=_lines(body.headers),
    )
    async with sources.kafka.own_session(request.login) as session:
        return await sources.kafka.in_thread(lambda: write(session, record))


async def reset_group(sources: Sources, request: Request, name: str, body: resetting.ResetQuery) -> Done:
    """Move a group to another position."""
    wanted = [body.topic] if body.topic else []
    moves = await sources.kafka.call(request.login, lambda session: changes.reset(session, name, body.to, wanted))
    return Done(f"{len(moves)} offsets of {name} are set" if moves else f"{name} is at that position already")


async def delete_group(sources: Sources, request: Request, name: str, body: Confirmation) -> Done:
    """Delete a group."""
    _check_confirmed(name, body)
    await sources.kafka.call(request.login, lambda session: changes.delete_group(session, name))
    return Done(f"group {name} is deleted")


async def abort_transaction(sources: Sources, request: Request, name: str, _body: Nothing) -> Done:
    """Abort an open transaction."""
    await sources.kafka.call(request.login, lambda session: changes.abort(session, name))
    return Done(f"the transaction of {name} is aborted")


async def create_user(sources: Sources, request: Request, body: NewUser) -> Done:
    """Create a user."""
    _check_again(body)
    await sources.kafka.call(
        request.login,
        lambda session: kafka_security.create_user(session, body.name, body.password, body.mechanism),
    )
    return Done(f"user {body.name} is created")


async def set_password(sources: Sources, request: Request, name: str, body: NewPassword) -> Done:
    """Give a user a new password."""
    _check_again(body)
    await sources.kafka.call(
        request.login, lambda session: kafka_security.set_password(session, name, body.password, body.mechanism)
    )
    return Done(f"user {name} has a new password")


async def delete_user(sources: Sources, request: Request, name: str, body: Confirmation) -> Done:
    """Delete a user."""
    _check_confirmed(name, body)
    await sources.kafka.call(request.login, lambda session: kafka_security.delete_user(session, name))
    return Done(f"user {name} is deleted")


async def add_acl(sources: Sources, request: Request, body: security.AclEntry) -> Done:
    """Add an entry to the access control lists."""
    binding = security.binding_of(body)
    await sources.kafka.call(request.login, lambda session: kafka_security.add_binding(session, binding))
    return Done(f"the entry is added: {security.sentence_of(binding)}")


async def remove_acl(sources: Sources, request: Request, body: security.AclEntry) -> Done:
    """Remove one entry of the access control lists."""
    binding = security.binding_of(body)
    await sources.kafka.call(request.login, lambda session: kafka_security.remove_binding(session, binding))
    return Done(f"the entry is removed: {security.sentence_of(binding)}")


def _check_again(body: NewUser | NewPassword) -> None:
    if body.again not in (None, body.password):
        raise msgspec.ValidationError("the two passwords differ")


def _check_confirmed(name: str, body: Confirmation) -> None:
    if body.confirm != name:
        raise msgspec.ValidationError(f"to confirm, type the name {name!r}")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
