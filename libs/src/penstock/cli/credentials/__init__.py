"""`penstock credentials`: creates a NATS user and a key to the S3 store for each service, once, and then keeps them.

May import the modules of `penstock.cli` except other commands. Start with `command`, then `passwords`. `wanted` has the
users, `nats_accounts` what each may do.
"""

from penstock.cli.credentials.command import add_parser, run
from penstock.cli.credentials.passwords import make_credentials
from penstock.cli.credentials.wanted import (
    ADMIN,
    AGENT,
    AGENT_ROLES,
    BUCKET_MAKER,
    JOURNAL,
    KEYS,
    OPERATORS,
    ROLES,
    USERS,
    Wanted,
)

__all__ = [
    "ADMIN",
    "AGENT",
    "AGENT_ROLES",
    "BUCKET_MAKER",
    "JOURNAL",
    "KEYS",
    "OPERATORS",
    "ROLES",
    "USERS",
    "Wanted",
    "add_parser",
    "make_credentials",
    "run",
]
