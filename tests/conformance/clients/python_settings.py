"""The settings of kafka-python, which aiokafka shares."""

from collections.abc import Callable
from typing import Any

from tests.conformance.logins import Login, read_login


def settings(arguments: list[str], tokens: Callable[[Login], Any]) -> dict[str, Any]:
    """The settings for a driver's arguments; `tokens` makes the client's provider of tokens."""
    bootstrap, *files = arguments
    login = read_login(files)
    if login is None:
        return {"bootstrap_servers": bootstrap}
    secured = {
        "bootstrap_servers": bootstrap,
        "security_protocol": login.protocol,
        "ssl_context": login.tls_context(),
    }
    if login.certificate:
        return secured
    secured["sasl_mechanism"] = login.mechanism
    if login.token_url:
        return secured | {"sasl_oauth_token_provider": tokens(login)}
    return secured | {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
