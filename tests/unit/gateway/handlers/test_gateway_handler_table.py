"""The table of handlers: a module names its API, takes and returns its messages, and gets the parts that it needs."""

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

import penstock_gateway
from penstock.kafkawire import api as wire
from penstock.kafkawire.api import API_TABLE
from penstock_gateway import handlers
from penstock_gateway.handlers import all_handlers, handlers_below
from penstock_gateway.kafka.client import Client
from penstock_gateway.parts import GatewayParts

API_MODULE = """
from types import SimpleNamespace

API = SimpleNamespace(key={key}, name="Ping")


async def handle(gateway: object, client: object, version: int, request: object) -> None:
    return None
"""


def modules_below(package: types.ModuleType) -> Iterator[types.ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.ispkg and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


HANDLERS = [pytest.param(module, id=module.__name__.split(".", 2)[-1]) for module in modules_below(handlers)]


def needed_parts(protocol: type) -> dict[str, Any]:
    """The attributes of a Protocol with their types."""
    properties = inspect.getmembers(protocol, lambda member: isinstance(member, property))
    return {name: get_type_hints(member.fget)["return"] for name, member in properties}


def missing_parts(protocol: type) -> list[str]:
    """The attributes of a Protocol that the parts of a gateway do not have, or have with another type."""
    parts = get_type_hints(GatewayParts)
    return [
        f"{name}: {needed}, but GatewayParts has {parts.get(name, 'no such attribute')}"
        for name, needed in needed_parts(protocol).items()
        if parts.get(name) != needed
    ]


@pytest.mark.parametrize("module", HANDLERS)
def test_a_handler_module_names_its_api_with_the_versions_that_it_serves(module: Any) -> None:
    assert hasattr(module, "API"), f"{module.__name__} must import API from the wire module of its messages"
    api = API_TABLE.get(module.API.key)
    assert api is module.API, f"{module.__name__}: the table of the wire has {api} for key {module.API.key}"
    assert 0 <= api.min_version <= api.max_version


@pytest.mark.parametrize("module", HANDLERS)
def test_a_handler_takes_the_request_of_its_api_and_returns_the_response(module: Any) -> None:
    assert inspect.iscoroutinefunction(module.handle), f"{module.__name__}.handle must be a coroutine function"
    hints = get_type_hints(module.handle)
    returned = hints.pop("return")
    assert list(hints) == ["gateway", "client", "version", "request"], f"{module.__name__}.handle"
    assert (hints["client"], hints["version"], hints["request"]) == (Client, int, module.API.request)
    is_union = get_origin(returned) in (Union, types.UnionType)
    responses = set(get_args(returned) if is_union else [returned]) - {types.NoneType}
    assert responses == {module.API.response}, f"{module.__name__}.handle returns {returned}"


@pytest.mark.parametrize("module", HANDLERS)
def test_the_parts_of_a_gateway_have_all_that_a_handler_needs(module: Any) -> None:
    needs = get_type_hints(module.handle)["gateway"]
    if needs is object:  # the handler uses no part
        return
    assert Protocol in needs.__mro__, f"{module.__name__}.handle takes {needs}, it must take a narrow Protocol"
    missing = missing_parts(needs)
    assert not missing, f"{module.__name__}.handle needs {'; '.join(missing)}. Add the part to penstock_gateway.parts."


def test_every_protocol_of_gateway_parts_is_satisfied_and_every_part_is_needed() -> None:
    protocols = {
        value
        for module in modules_below(penstock_gateway)
        for name, value in vars(module).items()
        if isinstance(value, type) and Protocol in value.__mro__ and (name == "Needs" or name.startswith("Has"))
    }
    missing = {f"{each.__module__}.{each.__qualname__}": missing_parts(each) for each in protocols}
    assert {name: parts for name, parts in missing.items() if parts} == {}
    needed = {name for protocol in protocols for name in needed_parts(protocol)}
    unused = get_type_hints(GatewayParts).keys() - needed
    assert not unused, f"no handler needs these attributes of GatewayParts: {', '.join(sorted(unused))}"


def test_each_api_of_the_wire_has_one_handler_module() -> None:
    by_api = {module.API.name: module.__name__ for module in modules_below(handlers)}  # type: ignore[attr-defined]
    assert by_api.keys() == {api.name for api in API_TABLE.values()}
    assert len(by_api) == len(HANDLERS), "two handler modules name the same API"
    assert {handle.__module__ for handle in all_handlers().values()} == set(by_api.values())  # type: ignore[attr-defined]


def test_a_handler_is_named_like_the_wire_module_of_its_api() -> None:
    wire_modules = {module.API.key: module.__name__.rpartition(".")[2] for module in modules_below(wire)}  # type: ignore[attr-defined]
    named = {key: handle.__module__.rpartition(".")[2] for key, handle in all_handlers().items()}  # type: ignore[attr-defined]
    assert named == wire_modules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """An importable package without modules."""
    path = tmp_path / f"handlers_of_{request.node.name}"
    path.mkdir()
    (path / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


def test_a_new_module_is_all_that_a_new_api_needs(package: Path) -> None:
    (package / "ping.py").write_text(API_MODULE.format(key=900))
    (package / "pong.py").write_text(API_MODULE.format(key=901))
    found = handlers_below([str(package)], package.name)
    assert {key: handle.__module__ for key, handle in found.items()} == {  # type: ignore[attr-defined]
        900: f"{package.name}.ping",
        901: f"{package.name}.pong",
    }


def test_two_modules_for_one_api_are_an_error_that_names_both(package: Path) -> None:
    (package / "ping.py").write_text(API_MODULE.format(key=900))
    (package / "pong.py").write_text(API_MODULE.format(key=900))
    with pytest.raises(AssertionError, match=r"\.pong handles Ping, which .*\.ping handles already"):
        handlers_below([str(package)], package.name)


def test_a_missing_part_is_named_with_its_type() -> None:
    class HasSpare(Protocol):
        @property
        def spare(self) -> int: ...

        @property
        def topics(self) -> msgspec.Struct: ...

    spare, topics = missing_parts(HasSpare)
    assert spare == "spare: <class 'int'>, but GatewayParts has no such attribute"
    assert topics.startswith("topics: <class 'msgspec.Struct'>, but GatewayParts has <class 'penstock_gateway.kafka")
