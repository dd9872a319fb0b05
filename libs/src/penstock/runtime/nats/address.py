"""Addresses of nats servers, as settings name them."""

import re
from urllib.parse import urlsplit

from penstock.contracts.errors import Invalid


def checked_server(text: str) -> str:
    """A server's address as the client can use it; `Invalid` with one sentence if it is none."""
    try:
        parts = urlsplit(text.strip() if "://" in text else f"nats://{text.strip()}")
        if parts.hostname and (parts.port is None or parts.port > 0):
            return parts.geturl()
    except ValueError:  # a port that is no number, or too large
        pass
    raise Invalid(f"a nats server is named nats://host:port: {without_password(text)!r}")


def without_password(address: str) -> str:
    """The address as it may be shown."""
    return re.sub(r"//[^@/]*@", "//***@", address)
