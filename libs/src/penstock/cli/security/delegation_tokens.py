"""`penstock token`: creates, renews, lists and revokes delegation tokens.

Only gateways can compute the password of a token. So `create` and `renew` speak Kafka only, and `list` shows none.
"""

import argparse
import datetime
from collections.abc import Sequence
from typing import Any

from penstock.cli.command_line import NewParser
from penstock.cli.kafka.durations import DURATION_HELP, duration_ms
from penstock.cli.kafka.session import confirm
from penstock.cli.output import Listing
from penstock.cli.security.administration import Token
from penstock.cli.security.connecting import TRANSPORT_HELP, add_admin_flags, connected_admin, connected_gateway
from penstock.cli.security.user import checked_name
from penstock.contracts.errors import Invalid
from penstock.contracts.security_rules import renewers_validation_error

NOTHING = "there are no delegation tokens"
LONGEST_MS = -1  # Kafka's word for the longest time that the gateways allow
KAFKA_ONLY_HELP = "It speaks Kafka only: --bootstrap, --profile or --command-config is required."
LONGEST_HELP = f"{DURATION_HELP} (the longest that the gateways allow)"


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock token` with the command line."""
    parser = new_parser(description=f"Delegation tokens of a cluster. {TRANSPORT_HELP}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser(
        "create",
        help="create a token",
        description="Create a token, and print its password. `penstock token list` does not show it.",
    )
    create.add_argument("--owner", metavar="NAME", default=None, help="a client with the token is this user (you)")
    create.add_argument("--renewer", metavar="NAME", action="append", default=[], help="may renew it; may be repeated")
    create.add_argument("--max-lifetime", metavar="TIME", default="", help=f"its end in any case: {LONGEST_HELP}")
    renew = verbs.add_parser(
        "renew", help="move the end of a token", description="Move the end of a token further away, as its renewer."
    )
    renew.add_argument("--period", metavar="TIME", default="", help=f"from now: {LONGEST_HELP}")
    listed = verbs.add_parser(
        "list",
        help="list all tokens",
        description="List all tokens: over NATS also ended ones, over Kafka those that the login may see.",
    )
    listed.add_argument("--owner", metavar="NAME", default=None, help="only the tokens of this user")
    revoke = verbs.add_parser(
        "revoke",
        help="end a token",
        description="End a token now. No client can log in with it any more. Sessions last until its expiry. Over "
        "Kafka the login must be its owner or a renewer.",
    )
    revoke.add_argument("-y", "--yes", action="store_true", help="do not ask")
    for verb in (renew, revoke):
        verb.add_argument("token_id", metavar="ID", help="id of the token")
    for verb, run_verb in ((create, _create), (renew, _renew), (listed, _list), (revoke, _revoke)):
        add_admin_flags(verb, is_change=verb is revoke)
        verb.set_defaults(run_verb=run_verb)
    create.epilog = renew.epilog = KAFKA_ONLY_HELP


async def _create(arguments: argparse.Namespace) -> Listing:
    owner = None if arguments.owner is None else checked_name(arguments.owner)
    renewers = list(dict.fromkeys(map(checked_name, arguments.renewer)))
    reason = renewers_validation_error(renewers)
    if reason:
        raise Invalid(reason)
    lifetime_ms = read_duration(arguments.max_lifetime)
    with connected_gateway(arguments) as admin:
        token, password = await admin.create_token(owner, renewers, lifetime_ms)
    return Listing([row_of(token) | {"password": password, "result": "created"}], NOTHING)


async def _renew(arguments: argparse.Namespace) -> Listing:
    period_ms = read_duration(arguments.period)
    with connected_gateway(arguments) as admin:
        token = await admin.renew_token(arguments.token_id, period_ms)
    return Listing([row_of(token) | {"result": "renewed"}], NOTHING)


async def _list(arguments: argparse.Namespace) -> Listing:
    async with connected_admin(arguments) as admin:
        tokens = await admin.tokens()
    return Listing([row_of(each) for each in tokens if arguments.owner in (None, each.owner)], NOTHING)


async def _revoke(arguments: argparse.Namespace) -> Listing:
    async with connected_admin(arguments) as admin:
        token = found_token(await admin.tokens(), arguments.token_id)
    if arguments.dry_run:
        return Listing([row_of(token) | {"result": "would be revoked"}], NOTHING)
    # The question can wait for long, so no connection is open meanwhile.
    confirm(f"Revoke delegation token {token.token_id} of {token.owner}?", is_confirmed=arguments.yes)
    async with connected_admin(arguments) as admin:
        await admin.revoke_token(token.token_id)
    return Listing([row_of(token) | {"expires": "revoked", "result": "revoked"}], NOTHING)


def found_token(tokens: Sequence[Token], token_id: str) -> Token:
    """The token with this id; `Invalid` if there is none."""
    found = [each for each in tokens if each.token_id == token_id]
    if not found:
        raise Invalid(f"there is no delegation token {token_id!r}; `penstock token list` lists all")
    return found[0]


def read_duration(text: str) -> int:
    """The length of time in ms, the longest one without a text; `Invalid` for any other text."""
    found = duration_ms(text) if text else LONGEST_MS
    if not found:
        raise Invalid(f"not a length of time: {text!r}; it is {DURATION_HELP}")
    return found


def row_of(token: Token) -> dict[str, Any]:
    """One line of a list."""
    return {
        "id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "expires": "revoked" if token.is_revoked else _time(token.expiry_ms),
        "until": _time(token.max_ms),
    }


def _time(ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):  # a clock was far in the future
        return f"{ms} ms"
