"""One module for each API that Penstock serves; `all_handlers` collects them.

A handler module has `API`, from the wire module of its messages, and `handle(gateway, client, version, request)`. The
type of the first parameter names the parts of the gateway that the handler uses. Handlers are thin: the work is in the
other packages of the gateway. Handlers may import all of them except `server`. The first paragraph of each docstring
stands in docs/kafka-compatibility.md. Start with `data/fetch.py` or `groups/join_group.py`.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from penstock_gateway.kafka.client import Client

# The first argument has all parts of the gateway; a handler sees only those that its type names.
Handler = Callable[[Any, Client, int, Any], Awaitable[msgspec.Struct | None]]


def all_handlers() -> dict[int, Handler]:
    """The handler of each API, by the API's key."""
    return handlers_below(__path__, __name__)


def handlers_below(path: Iterable[str], package: str) -> dict[int, Handler]:
    """The handlers of all modules below a package, by the keys of their APIs; `path` has the package's folders."""
    handlers: dict[int, Handler] = {}
    modules: dict[int, str] = {}
    for found in pkgutil.walk_packages(path, f"{package}."):
        if found.ispkg:
            continue
        module = importlib.import_module(found.name)
        key = module.API.key
        assert key not in modules, f"{found.name} handles {module.API.name}, which {modules[key]} handles already"
        handlers[key], modules[key] = module.handle, found.name
    return handlers
