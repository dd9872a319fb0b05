"""The allocator's settings; startup objects are frozen, and later objects are still collected."""

import ctypes
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runtime.process.memory import freeze_startup_objects, release_freed_memory, tune_malloc


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
    assert tune_malloc(lambda _name: object()) is False


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
