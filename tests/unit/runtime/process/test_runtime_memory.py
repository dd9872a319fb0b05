"""The allocator's settings; startup objects are frozen, and later objects are still collected."""

import ctypes
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runtime.process.memory import (
    freeze_startup_objects,
    release_freed_memory,
    resident_bytes_max,
    tune_malloc,
)


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_glibc_takes_the_settings() -> None:
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("this C library is not glibc")
    assert tune_malloc() is True


def test_without_a_mallopt_nothing_happens() -> None:
    assert tune_malloc(load_library=lambda _name: object()) is False


def test_freed_blocks_go_back_to_the_kernel() -> None:
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("this C library is not glibc")
    assert tune_malloc() is True
    blocks = [bytes(64 * 1024) for _ in range(1_000)]
    last = blocks.pop()  # memory below a block in use goes back, too
    before = resident_kib()
    blocks.clear()
    assert release_freed_memory() is True
    assert resident_kib() < before - 32 * 1024
    del last


LARGE_BLOCKS = """
from penstock.runtime.process.memory import FREE_LARGE_BLOCKS, tune_malloc
from tests.unit.runtime.process.test_runtime_memory import resident_kib

assert tune_malloc(FREE_LARGE_BLOCKS)
blocks = [b"x" * 2**20 for _ in range(60)]
last = blocks.pop()
before = resident_kib()
blocks.clear()
print(before - resident_kib())
"""


def test_large_blocks_go_back_by_themselves_with_the_settings_for_a_large_state() -> None:
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("this C library is not glibc")
    # In a fresh process, because a block takes free memory of the heap first.
    done = subprocess.run([sys.executable, "-c", LARGE_BLOCKS], capture_output=True, check=True, text=True)
    assert int(done.stdout) > 50 * 1024


def resident_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_without_a_malloc_trim_nothing_happens() -> None:
    assert release_freed_memory(lambda _name: object()) is False


def test_later_collections_visit_only_later_objects() -> None:
    stays = [[] for _ in range(1_000)]  # type: ignore[var-annotated]
    freeze_startup_objects()
    assert gc.get_freeze_count() >= len(stays)
    assert not any(each is stays for each in gc.get_objects())


def test_a_cycle_that_is_made_and_dies_later_is_collected() -> None:
    freeze_startup_objects()
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


def test_a_cycle_that_is_dead_already_is_not_kept() -> None:
    gone = weakref.ref(Node())
    freeze_startup_objects()
    assert gone() is None


def test_the_memory_of_a_process_is_in_bytes_on_each_system() -> None:
    on_macos, elsewhere = resident_bytes_max("darwin"), resident_bytes_max("linux")
    assert elsewhere // 1024 >= on_macos > 0
    assert elsewhere > 10_000_000  # more than Python alone
