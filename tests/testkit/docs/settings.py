"""The tables of docs/operating/reference.md: every setting of every service, from the structs of settings."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import FieldInfo

from penstock.runtime.process.config import ADVANCED, ServiceConfig
from penstock_cacher.config import CacherConfig
from penstock_compactor.config import CompactorConfig
from penstock_console.config import ConsoleConfig
from penstock_flusher.config import FlusherConfig
from penstock_gateway.config import GatewayConfig
from penstock_janitor.config import JanitorConfig
from penstock_sequencer.config import SequencerConfig
from tests.testkit.docs.blocks import Maker, table

CONFIGS: dict[str, type[ServiceConfig]] = {
    "service": ServiceConfig,
    "gateway": GatewayConfig,
    "flusher": FlusherConfig,
    "sequencer": SequencerConfig,
    "cacher": CacherConfig,
    "compactor": CompactorConfig,
    "janitor": JanitorConfig,
    "console": ConsoleConfig,
}


def makers() -> dict[str, Maker]:
    """A block `settings_SERVICE` for each service, and one block `advanced_settings`."""
    blocks: dict[str, Maker] = {
        f"settings_{name}": lambda name=name: _rows(own_settings(name), is_advanced=False) for name in CONFIGS
    }
    return blocks | {"advanced_settings": _advanced}


def own_settings(service: str) -> list[FieldInfo]:
    """The settings of a service without those that every service has."""
    fields = msgspec.structs.fields(CONFIGS[service])
    shared = {field.name for field in msgspec.structs.fields(ServiceConfig)}
    return [field for field in fields if service == "service" or field.name not in shared]


def _advanced() -> list[str]:
    rows = []
    for service in CONFIGS:
        name = "every service" if service == "service" else service
        rows += [[name, *_row(field)] for field in own_settings(service) if _is_advanced(field)]
    return table(["service", "setting", "default", "meaning"], rows)


def _rows(fields: Iterable[FieldInfo], *, is_advanced: bool) -> list[str]:
    return table(
        ["setting", "default", "meaning"], [_row(field) for field in fields if _is_advanced(field) == is_advanced]
    )


def _row(field: FieldInfo) -> list[str]:
    default = f"`{field.default}`" if str(field.default) else "(empty)"
    meaning = next((meta.description for meta in _metas(field) if meta.description), "")
    return [f"`{field.name}`", default, meaning]


def _is_advanced(field: FieldInfo) -> bool:
    return any(meta.extra == ADVANCED for meta in _metas(field))


def _metas(field: FieldInfo) -> list[msgspec.Meta]:
    return [each for each in getattr(field.type, "__metadata__", ()) if isinstance(each, msgspec.Meta)]
