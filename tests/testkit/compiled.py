"""Modules with hot loops, which `make env` compiles where it finds a C compiler (ADR 0044)."""

from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

CODE = Path(__file__).parents[2] / "libs" / "src"


def forms(name: str) -> dict[str, ModuleType]:
    """The module from its source, and the compiled one if there is one."""
    module = import_module(name)
    if str(module.__file__).endswith(".py"):
        return {"interpreted": module}
    loader = SourceFileLoader(name, str(CODE / f"{name.replace('.', '/')}.py"))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    interpreted = module_from_spec(spec)
    loader.exec_module(interpreted)
    return {"interpreted": interpreted, "compiled": module}


def outdated() -> Iterator[Path]:
    """The compiled files that are older than their sources; Python would use them all the same."""
    for compiled in CODE.rglob("*.so"):
        source = compiled.with_name(compiled.name.partition(".")[0].removesuffix("__mypyc") + ".py")
        if not source.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
            yield compiled
