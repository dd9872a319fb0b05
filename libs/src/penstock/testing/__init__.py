"""Penstock for the tests of applications: a server for a test run, fixtures of pytest, and a container.

May import everything of `penstock`, lazily: pytest loads `plugin` in each run of an environment that has Penstock.
pytest and testcontainers are not dependencies of Penstock. Start with `server`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.container import PenstockContainer
    from penstock.testing.server import PenstockServer

_PLACES = {"PenstockServer": "server", "PenstockContainer": "container"}

__all__ = ["PenstockContainer", "PenstockServer"]


def __getattr__(name: str) -> Any:
    """Import a class when it is used."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
