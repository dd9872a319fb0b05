"""The roles that one process can host, and where their code is."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from penstock.clusters.hosting import HostedRole
from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import HostingConfig
from penstock.runtime.process.life import App

USUAL = ("gateway", "flusher", "cacher")


class Role(msgspec.Struct, frozen=True):
    """A service as an agent sees it."""

    name: str
    config: type[HostingConfig]
    make: Callable[..., App]  # from the settings, and `make_host` by keyword
    hosted: Callable[..., HostedRole]  # from the settings of a process of many clusters


# In the order of their start; they drain in the reverse order, so that a gateway's requests find a flusher. A compactor
# runs large merges and key compaction only in an environment with Spark.
PLACES = {
    "sequencer": ("config:SequencerConfig", "__main__:make_app", "__main__:hosted"),
    "flusher": ("config:FlusherConfig", "app:FlusherApp", "__main__:hosted"),
    "cacher": ("config:CacherConfig", "app:CacherApp", "__main__:hosted"),
    "janitor": ("config:JanitorConfig", "app:JanitorApp", "__main__:hosted"),
    "compactor": ("config:CompactorConfig", "app:CompactorApp", "__main__:hosted"),
    "gateway": ("config:GatewayConfig", "app:GatewayApp", "hosting:hosted"),
}


def parse_roles(text: str) -> list[str]:
    """The roles in a list separated by commas, in start order; `Invalid` if it is no such list."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in PLACES:
            raise Invalid(f"--roles must name {', '.join(PLACES)}, separated by commas: {name!r}")
        if names.count(name) > 1:
            raise Invalid(f"--roles names {name} twice; start another agent for a second one")
    return [name for name in PLACES if name in names]


def load_role(name: str) -> Role:
    """Import a role's code; `Invalid` if its package is not installed."""
    return Role(name, *(_load(name, place) for place in PLACES[name]))


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    package = f"penstock_{name}"
    try:
        return getattr(import_module(f"{package}.{module}"), attribute)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise Invalid(f"the role {name} is not installed here: its package is penstock-{name}") from error
