"""A mutant: source text of modules, and the text that replaces it."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Change(NamedTuple):
    """One replacement. `old` must occur exactly once in the module's source."""

    module: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One fault. `why` names the fault, and the guarantee that it breaks.

    `tests` are the tests that `make mutants` runs first, as arguments of pytest; without them, those of the area.
    """

    name: str
    why: str
    changes: list[Change]
    tests: tuple[str, ...] = ()


class StaleMutant(Exception):
    """The source has changed: it does not contain the text that a mutant replaces exactly once."""


def mutated(source: str, mutant: str, changes: Iterable[Change]) -> str:
    """The source of one module with these changes of a mutant; `StaleMutant` if one of them does not fit."""
    for change in changes:
        found = source.count(change.old)
        if found != 1:
            raise StaleMutant(
                f"mutant {mutant}: {change.module} has this text {found} times, it must have it once. "
                f"The code has changed: correct the mutant in tests/testkit/mutants/catalog.\n{change.old}"
            )
        source = source.replace(change.old, change.new)
    return source


def check_applies(mutant: Mutant) -> None:
    """Raise `StaleMutant` if a change does not fit its module, `SyntaxError` if the module does not compile with it."""
    for module in dict.fromkeys(change.module for change in mutant.changes):
        path = _source_path(module)
        if path is None:
            raise StaleMutant(f"mutant {mutant.name}: there is no module {module}")
        changes = [change for change in mutant.changes if change.module == module]
        compile(mutated(path.read_text(), mutant.name, changes), str(path), "exec")


def source_of(origin: str) -> Path:
    """The source of a module that Python found in this file, which may be a compiled one (ADR 0044)."""
    found = Path(origin)
    return found.with_name(found.name.partition(".")[0] + ".py")


def _source_path(module: str) -> Path | None:
    """The path of a module's source; None if there is no such module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return None if spec is None or spec.origin is None else source_of(spec.origin)
