"""Python runs this when it starts with this folder on PYTHONPATH: plants the mutant that the environment names."""

import os

from tests.testkit.mutants.catalog import MUTANTS
from tests.testkit.mutants.importing import SETTING, plant

name = os.environ.get(SETTING)
if name:
    if name not in MUTANTS:
        raise SystemExit(f"{SETTING} names no mutant: {name}")  # any other exception would be a mere warning here
    plant(MUTANTS[name])
