"""Plants a mutant in this process: an import hook that changes modules' source when Python loads them.

The hook uses no bytecode files for the modules that it changes, so no other process gets the mutant.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import decode_source
from types import CodeType, ModuleType

from tests.testkit.mutants.mutant import Change, Mutant, mutated, source_of

SETTING = "PENSTOCK_MUTANT"  # the environment variable that names the mutant to the processes of a command


class AlreadyImported(Exception):
    """The mutant is too late: this process has loaded a module that the mutant changes."""


def plant(mutant: Mutant) -> None:
    """Change the mutant's modules when they are imported, from now on and as long as this process lives."""
    loaded = [change.module for change in mutant.changes if change.module in sys.modules]
    if loaded:
        raise AlreadyImported(f"mutant {mutant.name} changes {', '.join(loaded)}, which this process has imported")
    sys.meta_path.insert(0, _MutantFinder(mutant))


class _MutantFinder(MetaPathFinder):
    """Finds the modules that a mutant changes, and no others."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        changes = [change for change in self._mutant.changes if change.module == fullname]
        spec = PathFinder.find_spec(fullname, path, target) if changes else None
        if spec is None or spec.origin is None:
            return None
        spec.origin = str(source_of(spec.origin))
        spec.loader = _MutantLoader(fullname, spec.origin, self._mutant.name, changes)
        spec.cached = None
        return spec


class _MutantLoader(SourceFileLoader):
    """Compiles the changed source; without the cache of bytecode that its base class has."""

    def __init__(self, fullname: str, path: str, mutant: str, changes: Sequence[Change]) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = decode_source(self.get_data(path))
        return self.source_to_code(mutated(source, self._mutant, self._changes), path)
