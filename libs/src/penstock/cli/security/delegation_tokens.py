"""`penstock token`: lists and revokes delegation tokens, directly over NATS. It never has the password of a token."""

import argparse
import datetime
from typing import Any

from penstock.cli.command_line import NewParser
from penstock.cli.output import Listing, add_output_flag
from penstock.cli.running import add_cluster_flags, read_cluster, run
from penstock.cli.security.client import connected_security
from penstock.contracts.commands import DelegationToken, ExpireToken
from penstock.contracts.errors import Invalid

REVOKE_MS = -1


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock token` with the command line."""
    parser = new_parser(description="Delegation tokens of a cluster. The command needs no login, only access to NATS.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listed = verbs.add_parser("list", help="list all tokens", description="List all tokens, also ended ones.")
    listed.add_argument("--owner", metavar="NAME", default=None, help="only the tokens of this user")
    add_output_flag(listed)
    revoke = verbs.add_parser(
        "revoke",
        help="end a token",
        description="End a token now. No client can log in with it any more. Sessions last until its expiry.",
    )
    revoke.add_argument("token_id", metavar="ID", help="id of the token")
    for verb, run_verb in ((listed, _list), (revoke, _revoke)):
        add_cluster_flags(verb, with_store=False)
        verb.set_defaults(run=run, run_verb=run_verb)


async def _list(arguments: argparse.Namespace) -> Listing:
    async with connected_security(read_cluster(arguments), "penstock-token") as client:
        tokens = await client.read_tokens()
    rows = [row_of(each) for each in tokens if arguments.owner in (None, each.owner)]
    return Listing(rows, "there are no delegation tokens")


async def _revoke(arguments: argparse.Namespace) -> str:
    async with connected_security(read_cluster(arguments), "penstock-token") as client:
        found = [each for each in await client.read_tokens() if each.token_id == arguments.token_id]
        if not found:
            raise Invalid(f"there is no delegation token {arguments.token_id!r}; `penstock token list` lists all")
        await client.change(lambda now_ms, seen: ExpireToken(now_ms, arguments.token_id, None, REVOKE_MS, seen))
    return f"delegation token {arguments.token_id} of {found[0].owner} is revoked"


def row_of(token: DelegationToken) -> dict[str, Any]:
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
