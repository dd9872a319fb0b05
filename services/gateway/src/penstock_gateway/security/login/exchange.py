"""The contract between a login and its SASL mechanism: tokens of the client in, answers out, a user at the end."""

from typing import Protocol

import msgspec

TENANT_END = "/"  # in `tenant/user`, where the login chooses the cluster


class LoginFailed(Exception):
    """The login is over. The text is for the log of the operator, and has no secret; clients get a general one.

    `user` is the name that the client gave, if it gave one. `answer` is a text for the client, if its mechanism
    demands one.
    """

    def __init__(self, reason: str, user: str = "", answer: str = "") -> None:
        super().__init__(reason)
        self.user = user
        self.answer = answer


def user_of(name: str, tenant: str) -> str:
    """The user that a login names: `tenant/user` if there is a tenant; `LoginFailed` for another tenant."""
    if not tenant:
        return name
    given, _, user = name.partition(TENANT_END)
    if given != tenant or not user:
        raise LoginFailed("the user is not one of the tenant of this connection", name)
    return user


class Identity(msgspec.Struct, frozen=True):
    """A user that has proved its identity."""

    user: str
    expires_ms: int | None = None  # when its credential ends, in ms since 1970
    token_id: str = ""  # of the delegation token that was its credential


class Step(msgspec.Struct, frozen=True):
    """The server's answer to a token; with an identity, the login is complete."""

    answer: bytes
    identity: Identity | None = None
    failure: LoginFailed | None = None  # the login has failed, but the client must answer first


class Exchange(Protocol):
    """The server's side of one login."""

    async def respond(self, token: bytes) -> Step:
        """Answer the client's next token; raises `LoginFailed`, and `Unavailable` if the server cannot decide."""
