"""One module for each API that Penstock serves; `all_handlers` collects them.

A handler module has `API`, from the wire module of its messages, and `handle(gateway, client, version, request)`. The
type of the first parameter names the parts of the gateway that the handler uses. Handlers are thin: the work is in the
other packages of the gateway. Handlers may import all of them except `server`. The first paragraph of each docstring
stands in docs/kafka-compatibility.md. Start with `data/fetch.py` or `groups/join_group.py`.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock_gateway.kafka.client import Client

# The first argument has all parts of the gateway; a handler sees only those that its type names.
Handler = Callable[[Any, Client, int, Any], Awaitable[msgspec.Struct | None]]


def all_handlers() -> dict[int, Handler]:
    """The handler of each API, by the API's key."""
    handlers: dict[int, Handler] = {}
    for found in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not found.ispkg:
            module = importlib.import_module(found.name)
            handlers[module.API.key] = module.handle
    return handlers
