"""On the path of a test's processes: they know a level that no release reaches yet (`tests/testkit/levels.py`)."""

import os

from penstock.contracts import levels

levels.NEWEST_LEVEL = int(os.environ["PENSTOCK_TESTS_LEVEL"])
