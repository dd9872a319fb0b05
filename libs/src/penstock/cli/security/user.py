"""`penstock user`: creates, deletes, lists and describes users, directly over NATS.

A password comes from a prompt, a file or the environment, never from an argument: all users of a machine see the
arguments of its processes. Only the verifiers leave this process.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.cli.command_line import NewParser
from penstock.cli.output import Listing, add_output_flag
from penstock.cli.running import add_cluster_flags, read_cluster, run
from penstock.cli.security.client import connected_security
from penstock.contracts.commands import (
    AlterScramCredentials,
    Outcome,
    PerItem,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from penstock.contracts.errors import Invalid
from penstock.contracts.queries.security import User
from penstock.contracts.scram_keys import verifier_of_password
from penstock.contracts.security_rules import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NAMES,
    iterations_validation_error,
    user_validation_error,
)
from penstock.runtime.clock import SystemEntropy

PASSWORD_VARIABLE = "PENSTOCK_USER_PASSWORD"  # noqa: S105  the name of a variable
PASSWORD_LENGTH_MIN = 8
SALT_BYTES = 32
ITERATIONS_DEFAULT = 8_192
MECHANISMS = {name: mechanism for mechanism, name in MECHANISM_NAMES.items()}


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock user` with the command line."""
    parser = new_parser(
        description="Users of a cluster and their SCRAM passwords. The command needs no login, only access to NATS."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser(
        "create",
        allow_abbrev=False,  # else --password is --password-file, and its error shows the password
        help="create a user",
        description="Create a user. The password is read from the terminal, twice, or from --password-file or "
        f"{PASSWORD_VARIABLE}.",
    )
    create.add_argument("--password-file", metavar="FILE", default="", help="file whose first line is the password")
    create.add_argument("--replace", action="store_true", help="give an existing user a new password")
    create.add_argument(
        "--iterations",
        metavar="N",
        type=int,
        default=ITERATIONS_DEFAULT,
        help=f"work of each login, {ITERATIONS_MIN} to {ITERATIONS_MAX} (%(default)s)",
    )
    delete = verbs.add_parser("delete", help="delete a user", description="Delete a user, or one of its passwords.")
    for verb in (create, delete):
        verb.add_argument("--mechanism", choices=sorted(MECHANISMS), default=None, help="one mechanism only (all)")
    describe = verbs.add_parser("describe", help="show one user", description="Show the mechanisms of one user.")
    listed = verbs.add_parser("list", help="list all users", description="List all users and their mechanisms.")
    for verb in (create, delete, describe):
        verb.add_argument("name", metavar="NAME", help="name of the user")
    for verb in (describe, listed):
        add_output_flag(verb)
    for verb, run_verb in ((create, _create), (delete, _delete), (describe, _describe), (listed, _list)):
        add_cluster_flags(verb, with_store=False)
        verb.set_defaults(run=run, run_verb=run_verb)


async def _create(arguments: argparse.Namespace) -> str:
    name = _checked(arguments.name)
    reason = iterations_validation_error(arguments.iterations)
    if reason:
        raise Invalid(f"{reason.lower()}: {arguments.iterations}, allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    cluster = read_cluster(arguments)
    password = read_password(arguments.password_file)
    entropy = SystemEntropy()
    upsertions = [
        ScramUpsertion(name, verifier_of_password(each, password, entropy.take(SALT_BYTES), arguments.iterations))
        for each in mechanisms_of(arguments.mechanism)
    ]
    async with connected_security(cluster, "penstock-user") as client:
        users, _ = await client.read()
        is_there = any(each.name == name for each in users)
        if is_there and not arguments.replace:
            raise Invalid(f"user {name!r} exists already; --replace gives it a new password")
        check(await client.change(lambda now_ms, seen: AlterScramCredentials(now_ms, upsertions, [], seen)))
    return f"user {name} {'has a new password' if is_there else 'is created'}"


async def _delete(arguments: argparse.Namespace) -> str:
    name, wanted = _checked(arguments.name), mechanisms_of(arguments.mechanism)
    async with connected_security(read_cluster(arguments), "penstock-user") as client:
        users, _ = await client.read()
        user = found_user(users, name)
        deletions = [ScramDeletion(name, each.mechanism) for each in user.verifiers if each.mechanism in wanted]
        if not deletions:
            raise Invalid(f"user {name!r} has no password of {arguments.mechanism}")
        check(await client.change(lambda now_ms, seen: AlterScramCredentials(now_ms, [], deletions, seen)))
    return f"user {name} is deleted" if len(deletions) == len(user.verifiers) else f"user {name} has one password less"


async def _describe(arguments: argparse.Namespace) -> Listing:
    async with connected_security(read_cluster(arguments), "penstock-user") as client:
        users, _ = await client.read()
    return Listing([row_of(found_user(users, arguments.name))], "")


async def _list(arguments: argparse.Namespace) -> Listing:
    async with connected_security(read_cluster(arguments), "penstock-user") as client:
        users, _ = await client.read()
    return Listing([row_of(user) for user in users], "there are no users")


def _checked(name: str) -> str:
    reason = user_validation_error(name)
    if reason:
        raise Invalid(f"not a user name: {reason}")
    return name


def mechanisms_of(name: str | None) -> list[ScramMechanism]:
    """The mechanism with this name, all of them without a name."""
    return list(ScramMechanism) if name is None else [MECHANISMS[name]]


def found_user(users: Sequence[User], name: str) -> User:
    """The user with this name; `Invalid` if there is none."""
    found = [user for user in users if user.name == name]
    if not found:
        raise Invalid(f"there is no user {name!r}; `penstock user list` lists all users")
    return found[0]


def row_of(user: User) -> dict[str, Any]:
    """One line of a list, without any key."""
    mechanisms = [MECHANISM_NAMES[each.mechanism] for each in user.verifiers]
    return {"name": user.name, "mechanisms": mechanisms, "iterations": [each.iterations for each in user.verifiers]}


def check(outcome: Outcome) -> None:
    """`Invalid` if an item was rejected."""
    rejected = [each for each in outcome.rejections if each] if isinstance(outcome, PerItem) else []
    if rejected:
        raise Invalid(f"the change was rejected: {rejected[0].name}; the user may have been changed meanwhile")


def read_password(path: str, ask: Callable[[str], str] = getpass.getpass) -> bytes:
    """The password from the file, the environment or the terminal, in this order; `Invalid` if it is short."""
    password = _password_of(path, ask)
    if len(password) < PASSWORD_LENGTH_MIN:
        raise Invalid(f"a password has at least {PASSWORD_LENGTH_MIN} letters")
    return password.encode()


def _password_of(path: str, ask: Callable[[str], str]) -> str:
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"the password file cannot be read: {type(error).__name__}: {path}") from None
    if os.environ.get(PASSWORD_VARIABLE):
        return os.environ[PASSWORD_VARIABLE]
    if not sys.stdin.isatty():
        raise Invalid(f"no password is given: use a terminal, --password-file or {PASSWORD_VARIABLE}")
    first = ask("password: ")
    if first != ask("the same password again: "):
        raise Invalid("the two passwords differ")
    return first
