"""All pages and actions. Each page is HTML at its path, and JSON at the same path below `/api/v1`."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock_console.kafka.records import RecordPage, RecordQuery, Written
from penstock_console.pages import (
    clients,
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
from penstock_console.pages.context import ListQuery, Request, Sources, TableQuery
from penstock_console.web import actions

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
    """A change: its path, the struct of its form or JSON body, and the page to go back to.

    A line in the log has the names in the path, and the fields of the body that `logged` names: never a password.
    """

    path: str
    summary: str
    body: type[Any]
    perform: Callable[..., Awaitable[Any]]
    result: Any
    back: str  # a path with the same names in braces
    logged: tuple[str, ...] = ()


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
    Page(
        path="/topics/{name}",
        template="topic.html",
        title="Topic",
        view=topics.topic,
        result=topics.TopicPage,
        query=TableQuery,
    ),
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
    Page(
        path="/groups/{name}",
        template="group.html",
        title="Group",
        view=groups.group,
        result=groups.GroupPage,
        query=TableQuery,
    ),
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
    Page(
        path="/clients",
        template="clients.html",
        title="Clients",
        view=clients.clients,
        result=clients.ClientsPage,
        query=ListQuery,
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
    Page(
        path="/security/users/{name}",
        template="user.html",
        title="User",
        view=security.user,
        result=security.UserPage,
    ),
    Page(
        path="/security/acls/remove",
        template="removal.html",
        title="Remove an entry",
        view=security.removal,
        result=security.Acl,
        query=security.AclEntry,
    ),
)
ACTIONS = (
    Action(
        path="/topics",
        summary="Create a topic",
        body=actions.NewTopic,
        perform=actions.create_topic,
        result=actions.Done,
        back="/topics",
        logged=("name",),
    ),
    Action(
        path="/topics/{name}/configs",
        summary="Set a configuration of a topic",
        body=actions.ConfigChange,
        perform=actions.set_config,
        result=actions.Done,
        back="/topics/{name}",
    ),
    Action(
        path="/topics/{name}/partitions",
        summary="Give a topic more partitions",
        body=actions.MorePartitions,
        perform=actions.add_partitions,
        result=actions.Done,
        back="/topics/{name}",
    ),
    Action(
        path="/topics/{name}/delete",
        summary="Delete a topic",
        body=actions.Confirmation,
        perform=actions.delete_topic,
        result=actions.Done,
        back="/topics",
    ),
    Action(
        path="/topics/{name}/messages",
        summary="Write one record",
        body=actions.RecordForm,
        perform=actions.write_record,
        result=Written,
        back="/topics/{name}/messages",
    ),
    Action(
        path="/groups/{name}/reset",
        summary="Move a group without members to another position",
        body=resetting.ResetQuery,
        perform=actions.reset_group,
        result=actions.Done,
        back="/groups/{name}",
    ),
    Action(
        path="/groups/{name}/delete",
        summary="Delete a group without members",
        body=actions.Confirmation,
        perform=actions.delete_group,
        result=actions.Done,
        back="/groups",
    ),
    Action(
        path="/transactions/{name}/abort",
        summary="Abort an open transaction",
        body=actions.Nothing,
        perform=actions.abort_transaction,
        result=actions.Done,
        back="/transactions",
    ),
    Action(
        path="/security/users",
        summary="Create a user",
        body=actions.NewUser,
        perform=actions.create_user,
        result=actions.Done,
        back="/security",
        logged=("name", "mechanism"),
    ),
    Action(
        path="/security/users/{name}/password",
        summary="Give a user a new password",
        body=actions.NewPassword,
        perform=actions.set_password,
        result=actions.Done,
        back="/security/users/{name}",
        logged=("mechanism",),
    ),
    Action(
        path="/security/users/{name}/delete",
        summary="Delete a user",
        body=actions.Confirmation,
        perform=actions.delete_user,
        result=actions.Done,
        back="/security",
    ),
    Action(
        path="/security/acls",
        summary="Add an entry to the access control lists",
        body=security.AclEntry,
        perform=actions.add_acl,
        result=actions.Done,
        back="/security",
        logged=security.AclEntry.__struct_fields__,
    ),
    Action(
        path="/security/acls/remove",
        summary="Remove one entry of the access control lists",
        body=security.AclEntry,
        perform=actions.remove_acl,
        result=actions.Done,
        back="/security",
        logged=security.AclEntry.__struct_fields__,
    ),
)
