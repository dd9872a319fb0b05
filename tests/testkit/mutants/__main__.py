"""Runs a command under a mutant, with all Python processes that it starts.

python -m tests.testkit.mutants NAME -- .venv/bin/pytest -q tests/unit/sequencer
python -m tests.testkit.mutants NAME -- .venv/bin/python -m tests.testkit.sim 7
python -m tests.testkit.mutants --list
"""

import os
import sys
from pathlib import Path

from tests.testkit.mutants.catalog import AREAS, MUTANTS
from tests.testkit.mutants.importing import SETTING
from tests.testkit.mutants.mutant import check_applies

ROOT = Path(__file__).parents[3]
SITE = Path(__file__).parent / "site"
USAGE = "usage: python -m tests.testkit.mutants (--list | NAME -- COMMAND...)"


def main(arguments: list[str]) -> None:
    """Become the command, or print the list."""
    match arguments:
        case ["--list"]:
            for area, mutants in AREAS.items():
                print(area)
                for mutant in mutants:
                    print(f"  {mutant.name}: {mutant.why}")
        case [name, "--", command, *rest]:
            if name not in MUTANTS:
                raise SystemExit(f"no mutant {name}; --list prints all")
            check_applies(MUTANTS[name])
            paths = [str(SITE), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = os.environ | {SETTING: name, "PYTHONPATH": os.pathsep.join(paths)}
            os.execvpe(command, [command, *rest], environment)
        case _:
            raise SystemExit(USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
