"""The subjects that each NATS user may use, as a file for the nats-server.

Inboxes: answers to a user come to `_INBOX.<user>.<random>.<number>`, which no other user may listen to. The users that
answer may publish there. `allow_responses` is not used: it records every request, and loses the records with the
connection. Each user also publishes to its own inbox: the echo shows that the server received all earlier messages.

An agent is one connection for several roles. Its user may do what any of them may, and has one inbox.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from penstock.cli.credentials.wanted import AGENT, AGENT_ROLES, JOURNAL, OPERATORS, SYSTEM_USER
from penstock.contracts import subjects
from penstock.contracts.errors import Invalid
from penstock.contracts.senders import QUERIES
from penstock.contracts.subjects import QUERY_NAMES, Sender

ANY = "*"  # in place of a cluster, for processes that host all of them
DELETE_STREAMS = "$JS.API.STREAM.DELETE.*"  # for janitors that remove deleted clusters
HOSTING_ROLES = ("sequencer", "janitor", "compactor", JOURNAL)
SENDERS = {
    "gateway": Sender.CLIENT,
    "flusher": Sender.FLUSHER,
    "compactor": Sender.COMPACTOR,
    "janitor": Sender.JANITOR,
    "console": Sender.CONSOLE,
    "admin": Sender.ADMIN,
}
# All that the journal needs of JetStream. Only sequencers and `penstock journal` have a way to its entries.
_JOURNAL_API = ("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET", "STREAM.PURGE", "CONSUMER.CREATE")
_MOVE_API = ("STREAM.UPDATE", "STREAM.DELETE")  # of `penstock journal` only
# All that readers of the landing store need of JetStream (ADR 0045).
_LANDING_API = ("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET", "CONSUMER.CREATE")
_HEAD = """\
# Made by `penstock credentials`, which writes it again at each run. Every connection needs a password. Other subjects
# are rejected, with a line in the server's log.

include "credentials.env"

"""


class Permissions(msgspec.Struct, frozen=True):
    """The subjects that a user may publish to, and those it may subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions(cluster: str, *, with_old_services: bool = False, suffix: str = "") -> dict[str, Permissions]:
    """The permissions of each role's user; `with_old_services` adds the one subject for commands of release 0.1.

    `suffix` is the end of the users' names, which are in the names of inboxes. The cluster may be ANY.
    """
    presence, stream = subjects.presence_all(cluster), _stream(subjects.journal_stream, cluster)
    flush, cache, confirm = (f"{subjects.ROOT}.{cluster}.{name}.>" for name in ("flush", "cache", "confirm"))
    explain, heard = subjects.explain(cluster), subjects.heard(cluster)
    journal = [
        subjects.journal_subject(cluster),
        *(f"$JS.API.{name}.{stream}" for name in _JOURNAL_API),
        f"$JS.API.CONSUMER.DELETE.{stream}.*",
        f"$JS.FC.{stream}.>",  # the answers that let a consumer go on
    ]
    own = {
        "gateway": ([flush, cache, *_inboxes(suffix, "flusher")], [subjects.advanced(cluster), confirm, presence]),
        # It answers for its newest segments like a cacher.
        "flusher": ([confirm, *_inboxes(suffix, "gateway", "cacher")], [flush, cache, presence]),
        "sequencer": (
            [*journal, subjects.advanced(cluster), heard, *_inboxes(suffix, *SENDERS)],
            [f"{subjects.ROOT}.{cluster}.sequencer.>", heard, presence],
        ),
        "cacher": ([cache, *_inboxes(suffix, "gateway")], [cache, presence]),
        "compactor": ([], []),
        # Operators may use its container, so it asks itself.
        "janitor": ([explain, *_inboxes(suffix, "admin")], [explain]),
        # It looks at processes, and reads the state.
        "console": ([], [presence]),
        # It looks at processes, and at the state of the journal, but reads no entry.
        "admin": ([explain, f"$JS.API.STREAM.INFO.{stream}"], [presence]),
        # It talks to the servers only, and to no process.
        JOURNAL: ([*journal, *(f"$JS.API.{name}.{stream}" for name in _MOVE_API)], []),
    }
    found = {}
    for user, (publish, subscribe) in own.items():
        publish += _requests(user, cluster, with_old_services=with_old_services)
        publish += [] if user in OPERATORS else [f"{subjects.ROOT}.{cluster}.presence.{user}.>"]
        publish += _landing(user, cluster)
        inbox = f"_INBOX.{user}{suffix}.>"
        found[user] = Permissions((*publish, inbox), (*subscribe, inbox))
    found[AGENT] = _joint(f"{AGENT}{suffix}", [found[role] for role in AGENT_ROLES])
    return found


def hosting_permissions() -> dict[str, Permissions]:
    """The permissions of the users of processes that host all clusters: they may do what their roles may in each.

    Janitors also delete the streams of deleted clusters. Answers go to the users of all clusters.
    """
    found = permissions(ANY)
    more = {"sequencer": ["_INBOX.>"], "janitor": ["_INBOX.>", DELETE_STREAMS]}
    return {
        role: Permissions((*found[role].publish, *more.get(role, [])), found[role].subscribe) for role in HOSTING_ROLES
    }


def accounts_of_clusters(clusters: Sequence[str], *, with_landing: bool = False) -> str:
    """The text of a file with the users `ROLE-CLUSTER` of each cluster, and the users of hosting processes.

    The password of each user is a variable of the server's environment.
    """
    users = dict(hosting_permissions())
    for cluster in clusters:
        found = permissions(cluster, suffix=f"-{cluster}")
        for role in (role for role in found if role not in HOSTING_ROLES):
            users[f"{role}-{cluster}"] = _of_one_cluster(found[role], cluster, with_landing=with_landing)
    variables = [password_variable(user) for user in users]
    if len(set(variables)) < len(variables):
        raise Invalid("names of clusters that differ only in case, '-' and '_' have the same password variables")
    sections = "".join(_section(user, allowed) for user, allowed in users.items())
    named = "".join(f"#   {variable}\n" for variable in variables)
    return (
        "# Made by `penstock cluster nats-config`. Each user may use the subjects and streams of its cluster only.\n"
        f"# These variables in the environment of nats-server are the passwords:\n{named}\n"
        f"accounts {{\n  PENSTOCK {{\n    jetstream: enabled\n    users: [\n{sections}    ]\n  }}\n}}\n"
    )


def _of_one_cluster(found: Permissions, cluster: str, *, with_landing: bool) -> Permissions:
    """Without the requests to JetStream that could reach other clusters.

    A stream can copy another stream, and a consumer can send to any subject. So no such user creates streams: the
    sequencers create them. Consumers are only for those that read a landing store.
    """
    stream = subjects.landing_stream(cluster)

    def is_safe(subject: str) -> bool:
        is_of_landing = stream in subject.split(".") or subject == subjects.landing_objects(cluster)
        return not is_of_landing or (with_landing and not subject.startswith("$JS.API.STREAM.CREATE."))

    return Permissions(tuple(filter(is_safe, found.publish)), found.subscribe)


def password_variable(user: str) -> str:
    """The variable with the password of a user."""
    return f"{user.upper().replace('-', '_')}_PASSWORD"


def accounts(cluster: str, users: Iterable[str], *, with_old_services: bool = False) -> str:
    """The text of the file; its passwords are variables of the file that it includes. The cluster may be ANY."""
    found = permissions(cluster, with_old_services=with_old_services)
    if cluster == ANY and "janitor" in found:
        publish = (*found["janitor"].publish, DELETE_STREAMS)
        found["janitor"] = msgspec.structs.replace(found["janitor"], publish=publish)
    sections = "".join(_section(user, found[user]) for user in users)
    return (
        f"{_HEAD}accounts {{\n  PENSTOCK {{\n    jetstream: enabled\n    users: [\n{sections}    ]\n  }}\n"
        "  # For people who look at the servers themselves: `nats server report jetstream` and the like.\n"
        f"  SYS {{ users: [{{ user: {SYSTEM_USER}, password: $SYSTEM_PASSWORD }}] }}\n}}\n\nsystem_account: SYS\n"
    )


def _joint(user: str, parts: Sequence[Permissions]) -> Permissions:
    """The permissions of one connection with several roles; it listens to no inbox but its own."""
    inbox = f"_INBOX.{user}.>"
    publish = dict.fromkeys(subject for part in parts for subject in part.publish)
    subscribe = dict.fromkeys(each for part in parts for each in part.subscribe if not each.startswith("_INBOX."))
    return Permissions(tuple(publish | {inbox: None}), (*subscribe, inbox))


def _stream(name: Callable[[str], str], cluster: str) -> str:
    """The stream's name; of any cluster it is any stream, because a wildcard stands for a whole name."""
    return ANY if cluster == ANY else name(cluster)


def _inboxes(suffix: str, *users: str) -> list[str]:
    """The inboxes of users, and that of agents if they have the role of one of them."""
    agents = [AGENT] if set(users) & set(AGENT_ROLES) else []
    return [f"_INBOX.{user}{suffix}.>" for user in (*users, *agents)]


def _requests(user: str, cluster: str, *, with_old_services: bool) -> list[str]:
    """The subjects of the user's commands and queries."""
    sender = SENDERS.get(user)
    if sender is None:
        return []
    old = [subjects.sequencer_command_of_any(cluster)] if with_old_services and sender is not Sender.ADMIN else []
    names = QUERIES[sender]
    every = [f"{subjects.ROOT}.{cluster}.sequencer.query.*"]
    queries = every if set(names) == set(QUERY_NAMES) else [subjects.sequencer_query(cluster, name) for name in names]
    return [subjects.sequencer_command(cluster, sender), *old, *queries]


def _landing(user: str, cluster: str) -> list[str]:
    """The subjects by which the user reads the landing store, flushers write it, and janitors delete from it.

    `penstock journal` also writes it and changes its copies.

    A console gets none: it reads records from gateways only, with the rights of its user.
    """
    if user == "console":
        return []
    stream = _stream(subjects.landing_stream, cluster)
    objects = f"{subjects.ROOT}-landing.*.>" if cluster == ANY else subjects.landing_objects(cluster)
    reads = [f"$JS.API.{name}.{stream}" for name in _LANDING_API]
    reads += [f"$JS.API.CONSUMER.DELETE.{stream}.*", f"$JS.API.DIRECT.GET.{stream}.>"]
    own = {
        "flusher": [objects],
        JOURNAL: [objects, f"$JS.API.STREAM.UPDATE.{stream}"],
        "janitor": [f"$JS.API.STREAM.PURGE.{stream}"],
    }
    return [*reads, *own.get(user, [])]


def _section(user: str, allowed: Permissions) -> str:
    return (
        f"      {{\n        user: {user}, password: ${password_variable(user)}\n        permissions: {{\n"
        f"          publish: {_listed(allowed.publish)}\n          subscribe: {_listed(allowed.subscribe)}\n"
        "        }\n      }\n"
    )


def _listed(names: Iterable[str]) -> str:
    return "[\n" + "".join(f'            "{name}"\n' for name in names) + "          ]"
