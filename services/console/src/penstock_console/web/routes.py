"""All pages and actions. Each page is HTML at its path, and JSON at the same path below `/api/v1`."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock_console.kafka import changes
from penstock_console.kafka.records import NewRecord, RecordPage, RecordQuery, Written, write
from penstock_console.pages import (
    cluster,
    groups,
    messages,
    overview,
    resetting,
    security,
    storage,
    topics,
    transactions,
)
from penstock_console.pages.context import ListQuery, Request, Sources

API = "/api/v1"
TAIL = "/topics/{name}/tail"  # new records as server-sent events


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page: its path, the template of its HTML, and the function that makes its content.

    The parts of the path in braces are arguments of the function, numbers if their names are in `numbers`. With a
    `query` struct, the parameters of the address are one more argument.
    """

    path: str
    template: str
    title: str
    view: Callable[..., Awaitable[Any]]
    result: Any
    query: type[Any] | None = None
    numbers: tuple[str, ...] = ()
    api_path: str = ""  # where it differs from `path`


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A change: its path, the struct of its form or JSON body, and the page to go back to."""

    path: str
    summary: str
    body: type[Any]
    perform: Callable[..., Awaitable[Any]]
    result: Any
    back: str  # a path with the same names in braces


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


def _check_confirmed(name: str, body: Confirmation) -> None:
    if body.confirm != name:
        raise msgspec.ValidationError(f"to confirm, type the name {name!r}")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


async def topic_messages(sources: Sources, request: Request, name: str, query: RecordQuery) -> RecordPage:
    """The records of the topic in the path."""
    return await messages.messages(sources, request, msgspec.structs.replace(query, topic=name))


PAGES = (
    Page(
        path="/",
        api_path="/overview",
        template="overview.html",
        title="Overview",
        view=overview.overview,
        result=overview.Overview,
    ),
    Page(
        path="/topics",
        template="topics.html",
        title="Topics",
        view=topics.topics,
        result=topics.TopicList,
        query=ListQuery,
    ),
    Page(
        path="/deleted-topics",
        template="deleted.html",
        title="Deleted topics",
        view=topics.deleted_topics,
        result=topics.DeletedTopics,
    ),
    Page(path="/topics/{name}", template="topic.html", title="Topic", view=topics.topic, result=topics.TopicPage),
    Page(
        path="/topics/{name}/messages",
        template="messages.html",
        title="Messages",
        view=topic_messages,
        result=RecordPage,
        query=RecordQuery,
    ),
    Page(
        path="/topics/{name}/partitions/{number}",
        template="partition.html",
        title="Partition",
        view=storage.partition,
        result=storage.PartitionPage,
        numbers=("number",),
    ),
    Page(
        path="/groups",
        template="groups.html",
        title="Groups",
        view=groups.groups,
        result=groups.GroupList,
        query=ListQuery,
    ),
    Page(path="/groups/{name}", template="group.html", title="Group", view=groups.group, result=groups.GroupPage),
    Page(
        path="/groups/{name}/reset",
        template="reset.html",
        title="Reset",
        view=resetting.reset_preview,
        result=resetting.ResetPreview,
        query=resetting.ResetQuery,
    ),
    Page(
        path="/transactions",
        template="transactions.html",
        title="Transactions",
        view=transactions.transactions,
        result=transactions.TransactionList,
        query=ListQuery,
    ),
    Page(
        path="/transactions/{name}",
        template="transaction.html",
        title="Transaction",
        view=transactions.transaction,
        result=transactions.TransactionPage,
    ),
    Page(path="/storage", template="storage.html", title="Storage", view=storage.storage, result=storage.StoragePage),
    Page(path="/cluster", template="cluster.html", title="Cluster", view=cluster.cluster, result=cluster.ClusterPage),
    Page(
        path="/security",
        template="security.html",
        title="Security",
        view=security.security,
        result=security.SecurityPage,
    ),
    Page(
        path="/security/check",
        template="check.html",
        title="Check access",
        view=security.check,
        result=security.CheckResult,
        query=security.CheckQuery,
    ),
)
ACTIONS = (
    Action(path="/topics", summary="Create a topic", body=NewTopic, perform=create_topic, result=Done, back="/topics"),
    Action(
        path="/topics/{name}/configs",
        summary="Set a configuration of a topic",
        body=ConfigChange,
        perform=set_config,
        result=Done,
        back="/topics/{name}",
    ),
    Action(
        path="/topics/{name}/partitions",
        summary="Give a topic more partitions",
        body=MorePartitions,
        perform=add_partitions,
        result=Done,
        back="/topics/{name}",
    ),
    Action(
        path="/topics/{name}/delete",
        summary="Delete a topic",
        body=Confirmation,
        perform=delete_topic,
        result=Done,
        back="/topics",
    ),
    Action(
        path="/topics/{name}/messages",
        summary="Write one record",
        body=RecordForm,
        perform=write_record,
        result=Written,
        back="/topics/{name}/messages",
    ),
    Action(
        path="/groups/{name}/reset",
        summary="Move a group without members to another position",
        body=resetting.ResetQuery,
        perform=reset_group,
        result=Done,
        back="/groups/{name}",
    ),
    Action(
        path="/groups/{name}/delete",
        summary="Delete a group without members",
        body=Confirmation,
        perform=delete_group,
        result=Done,
        back="/groups",
    ),
    Action(
        path="/transactions/{name}/abort",
        summary="Abort an open transaction",
        body=Nothing,
        perform=abort_transaction,
        result=Done,
        back="/transactions",
    ),
)
