"""One module for each API that Penstock serves; the table of handlers is made from the modules.

A handler module has `API`, from the wire module of its messages, and `handle(gateway, client, version, request)`. The
first parameter's type says what the handler uses of the gateway. Handlers are thin: the work is in the other packages
of the gateway, all of which they may import except `server`. Start with `data/fetch.py` or `groups/join_group.py`.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock_gateway.kafka.client import Client

# The first argument is the object with all parts of the gateway, of which a handler sees what its type names.
Handler = Callable[[Any, Client, int, Any], Awaitable[msgspec.Struct | None]]


def all_handlers() -> dict[int, Handler]:
    """The handler of each API, by the API's key."""
    handlers: dict[int, Handler] = {}
    for found in pkgutil.walk_packages(__path__, f"{__name__}."):
        if not found.ispkg:
            module = importlib.import_module(found.name)
            handlers[module.API.key] = module.handle
    return handlers
