"""The subjects that each NATS user may use, as a file for the nats-server.

Inboxes: answers to a user come to `_INBOX.<user>.<random>.<number>`, which no other user may listen to. The users that
answer may publish there. `allow_responses` is not used: it records every request, and loses the records with the
connection. Each user also publishes to its own inbox: the echo shows that the server received all earlier messages.

An agent is one connection for several roles. Its user may do what any of them may, and has one inbox.
"""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.cli.credentials.wanted import AGENT, AGENT_ROLES, SYSTEM_USER
from penstock.contracts import subjects
from penstock.contracts.senders import QUERIES
from penstock.contracts.subjects import QUERY_NAMES, Sender

SENDERS = {
    "gateway": Sender.CLIENT,
    "flusher": Sender.FLUSHER,
    "compactor": Sender.COMPACTOR,
    "janitor": Sender.JANITOR,
    "console": Sender.CONSOLE,
    "admin": Sender.ADMIN,
}
# All that the journal needs of JetStream; the last two are for `penstock journal`, which runs as a sequencer. Only
# sequencers have a way to its entries.
_JOURNAL_API = (
    "STREAM.INFO",
    "STREAM.CREATE",
    "STREAM.MSG.GET",
    "STREAM.PURGE",
    "CONSUMER.CREATE",
    "STREAM.UPDATE",
    "STREAM.DELETE",
)
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


def permissions(cluster: str, *, with_old_services: bool = False) -> dict[str, Permissions]:
    """The permissions of each user; `with_old_services` adds the one subject for commands of release 0.1."""
    presence, stream = subjects.presence_all(cluster), subjects.journal_stream(cluster)
    flush, cache, confirm = (f"{subjects.ROOT}.{cluster}.{name}.>" for name in ("flush", "cache", "confirm"))
    explain, heard = subjects.explain(cluster), subjects.heard(cluster)
    own = {
        "gateway": ([flush, cache, *_inboxes("flusher")], [subjects.advanced(cluster), confirm, presence]),
        # It answers for its newest segments like a cacher.
        "flusher": ([confirm, *_inboxes("gateway", "cacher")], [flush, cache, presence]),
        "sequencer": (
            [
                subjects.journal_subject(cluster),
                subjects.advanced(cluster),
                heard,
                *_inboxes(*SENDERS),
                *(f"$JS.API.{name}.{stream}" for name in _JOURNAL_API),
                f"$JS.API.CONSUMER.DELETE.{stream}.*",
                f"$JS.FC.{stream}.>",  # the answers that let a consumer go on
            ],
            [f"{subjects.ROOT}.{cluster}.sequencer.>", heard],
        ),
        "cacher": ([cache, *_inboxes("gateway")], [cache, presence]),
        "compactor": ([], []),
        # Operators may use its container, so it asks itself.
        "janitor": ([explain, *_inboxes("admin")], [explain]),
        # It looks at processes, and reads the state.
        "console": ([], [presence]),
        # It looks at processes, and at the state of the journal, but reads no entry.
        "admin": ([explain, f"$JS.API.STREAM.INFO.{stream}"], [presence]),
    }
    found = {}
    for user, (publish, subscribe) in own.items():
        publish += _requests(user, cluster, with_old_services=with_old_services)
        publish += [] if user == "admin" else [f"{subjects.ROOT}.{cluster}.presence.{user}.>"]
        publish += _landing(user, cluster)
        inbox = f"_INBOX.{user}.>"
        found[user] = Permissions((*publish, inbox), (*subscribe, inbox))
    found[AGENT] = _joint(AGENT, [found[role] for role in AGENT_ROLES])
    return found


def accounts(cluster: str, users: Iterable[str], *, with_old_services: bool = False) -> str:
    """The text of the file; its passwords are variables of the file that it includes."""
    found = permissions(cluster, with_old_services=with_old_services)
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


def _inboxes(*users: str) -> list[str]:
    """The inboxes of users, and that of agents if they have the role of one of them."""
    agents = [AGENT] if set(users) & set(AGENT_ROLES) else []
    return [f"_INBOX.{user}.>" for user in (*users, *agents)]


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

    Sequencers may also write it and change its copies, for `penstock journal`.

    A console gets none: it reads records from gateways only, with the rights of its user.
    """
    if user == "console":
        return []
    stream, objects = subjects.landing_stream(cluster), subjects.landing_objects(cluster)
    reads = [f"$JS.API.{name}.{stream}" for name in _LANDING_API]
    reads += [f"$JS.API.CONSUMER.DELETE.{stream}.*", f"$JS.API.DIRECT.GET.{stream}.>"]
    own = {
        "flusher": [objects],
        "sequencer": [objects, f"$JS.API.STREAM.UPDATE.{stream}"],
        "janitor": [f"$JS.API.STREAM.PURGE.{stream}"],
    }
    return [*reads, *own.get(user, [])]


def _section(user: str, allowed: Permissions) -> str:
    return (
        f"      {{\n        user: {user}, password: ${user.upper()}_PASSWORD\n        permissions: {{\n"
        f"          publish: {_listed(allowed.publish)}\n          subscribe: {_listed(allowed.subscribe)}\n"
        "        }\n      }\n"
    )


def _listed(names: Iterable[str]) -> str:
    return "[\n" + "".join(f'            "{name}"\n' for name in names) + "          ]"
