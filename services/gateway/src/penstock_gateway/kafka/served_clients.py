"""The setting `served_clients`: the kind of clients whose records a gateway takes or gives. Pure."""

from enum import Enum

from penstock.contracts.errors import Invalid


class ServedClients(Enum):
    """The clients that a gateway serves."""

    ALL = "all"
    PRODUCERS = "producers"
    CONSUMERS = "consumers"


def parse_served(text: str) -> ServedClients:
    """The clients of a setting; `Invalid` if it names none."""
    try:
        return ServedClients(text)
    except ValueError:
        raise Invalid(f"served_clients must be all, producers or consumers: {text!r}") from None
