"""`penstock user`: creates, deletes, lists and describes users.

A password comes from a prompt, a file or the environment, never from an argument: all users of a machine see the
arguments of its processes.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.cli.command_line import NewParser
from penstock.cli.kafka.properties import read_text
from penstock.cli.kafka.session import confirm
from penstock.cli.output import Listing
from penstock.cli.security.administration import Credential, NewPassword, ScramUser
from penstock.cli.security.connecting import TRANSPORT_HELP, add_admin_flags, connected_admin
from penstock.contracts.commands import ScramDeletion, ScramMechanism
from penstock.contracts.errors import Invalid
from penstock.contracts.scram_keys import salted_password
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
    parser = new_parser(description=f"Users of a cluster and their SCRAM passwords. {TRANSPORT_HELP}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser(
        "create",
        allow_abbrev=False,  # else --password is --password-file, and its error shows the password
        help="create a user",
        description="Create a user. The password is read from the terminal, twice, or from --password-file or "
        f"{PASSWORD_VARIABLE}.",
    )
    create.add_argument(
        "--password-file",
        metavar="FILE",
        default="",
        dest="new_password_file",  # `password_file` is the one of the login
        help="file whose first line is the password",
    )
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
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")
    for verb, run_verb in ((create, _create), (delete, _delete), (describe, _describe), (listed, _list)):
        add_admin_flags(verb, is_change=verb in (create, delete))
        verb.set_defaults(run_verb=run_verb)


async def _create(arguments: argparse.Namespace) -> Listing:
    name, iterations = checked_name(arguments.name), arguments.iterations
    reason = iterations_validation_error(iterations)
    if reason:
        raise Invalid(f"{reason.lower()}: {iterations}, allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    mechanisms = mechanisms_of(arguments.mechanism)
    async with connected_admin(arguments) as admin:
        is_there = any(each.name == name for each in await admin.users())
    if is_there and not arguments.replace:
        raise Invalid(f"user {name!r} exists already; --replace gives it a new password")
    if not arguments.dry_run:  # the prompt can wait for long, so no connection is open meanwhile
        passwords = new_passwords(name, mechanisms, read_password(arguments.new_password_file), iterations)
        async with connected_admin(arguments) as admin:
            await admin.set_passwords(passwords)
    credentials = [Credential(each, iterations) for each in mechanisms]
    word = "replaced" if is_there else "created"
    return _changed(ScramUser(name, credentials), word, arguments)


async def _delete(arguments: argparse.Namespace) -> Listing:
    name, wanted = checked_name(arguments.name), mechanisms_of(arguments.mechanism)
    async with connected_admin(arguments) as admin:
        user = found_user(await admin.users(), name)
    chosen = [each for each in user.credentials if each.mechanism in wanted]
    if not chosen:
        raise Invalid(f"user {name!r} has no password of {arguments.mechanism}")
    if not arguments.dry_run:  # the question can wait for long, so no connection is open meanwhile
        is_whole = len(chosen) == len(user.credentials)
        what = f"user {name}" if is_whole else f"the {MECHANISM_NAMES[chosen[0].mechanism]} password of user {name}"
        confirm(f"Delete {what}?", is_confirmed=arguments.yes)
        async with connected_admin(arguments) as admin:
            await admin.delete_credentials([ScramDeletion(name, each.mechanism) for each in chosen])
    return _changed(ScramUser(name, chosen), "deleted", arguments)


def _changed(user: ScramUser, word: str, arguments: argparse.Namespace) -> Listing:
    """The result of a change: the user with the credentials that it concerns."""
    return Listing([row_of(user) | {"result": f"would be {word}" if arguments.dry_run else word}], "")


async def _describe(arguments: argparse.Namespace) -> Listing:
    async with connected_admin(arguments) as admin:
        return Listing([row_of(found_user(await admin.users(), arguments.name))], "")


async def _list(arguments: argparse.Namespace) -> Listing:
    async with connected_admin(arguments) as admin:
        return Listing([row_of(user) for user in await admin.users()], "there are no users")


def new_passwords(
    name: str, mechanisms: Sequence[ScramMechanism], password: bytes, iterations: int
) -> list[NewPassword]:
    """The password for each mechanism, with a salt of its own."""
    entropy = SystemEntropy()
    salts = [entropy.take(SALT_BYTES) for _ in mechanisms]
    return [
        NewPassword(name, each, iterations, salt, salted_password(each, password, salt, iterations))
        for each, salt in zip(mechanisms, salts, strict=True)
    ]


def checked_name(name: str) -> str:
    """The name; `Invalid` if no user can have it."""
    reason = user_validation_error(name)
    if reason:
        raise Invalid(f"not a user name: {reason}")
    return name


def mechanisms_of(name: str | None) -> list[ScramMechanism]:
    """The mechanism with this name, all of them without a name."""
    return list(ScramMechanism) if name is None else [MECHANISMS[name]]


def found_user(users: Sequence[ScramUser], name: str) -> ScramUser:
    """The user with this name; `Invalid` if there is none."""
    found = [user for user in users if user.name == name]
    if not found:
        raise Invalid(f"there is no user {name!r}; `penstock user list` lists all users")
    return found[0]


def row_of(user: ScramUser) -> dict[str, Any]:
    """One line of a list, without any key."""
    mechanisms = [MECHANISM_NAMES[each.mechanism] for each in user.credentials]
    return {"name": user.name, "mechanisms": mechanisms, "iterations": [each.iterations for each in user.credentials]}


def read_password(path: str, ask: Callable[[str], str] = getpass.getpass) -> bytes:
    """The password from the file, the environment or the terminal, in this order; `Invalid` if it is short."""
    return checked_password(_password_of(path, ask))


def checked_password(password: str) -> bytes:
    """The bytes of a password; `Invalid` if it is short or no text. No error contains a part of it."""
    if len(password) < PASSWORD_LENGTH_MIN:
        raise Invalid(f"a password has at least {PASSWORD_LENGTH_MIN} letters")
    try:
        return password.encode()
    except UnicodeEncodeError:
        raise Invalid("a password is text that UTF-8 can have") from None


def _password_of(path: str, ask: Callable[[str], str]) -> str:
    if path:
        return read_text(Path(path), "the password").partition("\n")[0].rstrip("\r")
    if os.environ.get(PASSWORD_VARIABLE):
        return os.environ[PASSWORD_VARIABLE]
    if not sys.stdin.isatty():
        raise Invalid(f"no password is given: use a terminal, --password-file or {PASSWORD_VARIABLE}")
    first = ask("password: ")
    if first != ask("the same password again: "):
        raise Invalid("the two passwords differ")
    return first
