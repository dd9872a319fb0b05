"""Logins at listeners where the login chooses the cluster: the client's first token names `tenant/user`.

The logins of the tenant's cluster take over at that token. A tenant that does not exist gets the answers of an unknown
user of a tenant, after the same delays. The connection moves to the gateway of the cluster when its user is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from penstock.kafkawire.api.sasl_authenticate import SaslAuthenticateResponse
from penstock_gateway.kafka.client import Client
from penstock_gateway.security.login.exchange import TENANT_END, LoginFailed
from penstock_gateway.security.login.logins import HasLogins, Logins, LoginState
from penstock_gateway.security.login.plain_login import parse_plain
from penstock_gateway.security.login.scram import SCRAM_NAMES, parse_client_first


@dataclass(slots=True)
class _Choice:
    """The gateway that a connection's first token has chosen; None before it, and for an unknown tenant."""

    is_made: bool = False
    gateway: HasLogins | None = None


class TenantLogins(Logins):
    """The logins of no cluster, until the tenant is known; its own users do not exist."""

    def __init__(self, find: Callable[[str], HasLogins | None], **own: Any) -> None:
        """`find` returns the gateway of a tenant; `Unavailable` if its cluster is not served yet."""
        super().__init__(**own)
        self._find = find

    def chosen(self, client: Client) -> HasLogins:
        """The gateway that has checked the login of a client."""
        gateway = client.part(_Choice).gateway
        assert gateway is not None, "no login succeeds without a cluster"
        return gateway

    async def authenticate(self, client: Client, token: bytes) -> SaslAuthenticateResponse:
        gateway = self._gateway_of(client, token)
        if gateway is None:
            return await super().authenticate(client, token)
        return await gateway.logins.authenticate(client, token)

    async def take_raw_token(self, client: Client, token: bytes) -> bytes:
        gateway = self._gateway_of(client, token)
        if gateway is None:
            return await super().take_raw_token(client, token)
        return await gateway.logins.take_raw_token(client, token)

    def _gateway_of(self, client: Client, token: bytes) -> HasLogins | None:
        login, choice = client.part(LoginState), client.part(_Choice)
        if login.exchange is not None and not choice.is_made:
            choice.is_made = True
            tenant, _, user = _name(login.mechanism, token).partition(TENANT_END)
            gateway = self._find(tenant)
            if gateway is not None and user:
                choice.gateway = gateway
                gateway.logins.take_over(client, tenant)
        if choice.gateway is not None:
            structlog.contextvars.bind_contextvars(tenant=login.tenant)  # in the log lines of this request
        return choice.gateway


def _name(mechanism: str, token: bytes) -> str:
    """The name in a first token; "" if it is malformed, so that the exchange of the mechanism reports it."""
    try:
        return parse_client_first(token).user if mechanism in SCRAM_NAMES else parse_plain(token)[0]
    except LoginFailed:
        return ""
