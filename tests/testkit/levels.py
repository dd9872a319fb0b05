"""Processes that know the newest level there is in the code, before a release reaches it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.contracts.levels import TRANSACTIONS_LEVEL

_FOLDER = Path(__file__).with_name("newest_level")


@contextmanager
def processes_know_level(level: int = TRANSACTIONS_LEVEL) -> Iterator[None]:
    """Whoever starts processes in this block, `penstock up` as well, has them raise their cluster to this level."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_TESTS_LEVEL", str(level))
        patch.setenv("PYTHONPATH", f"{_FOLDER}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep))
        yield
