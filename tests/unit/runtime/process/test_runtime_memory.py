"""The allocator's settings; startup objects are frozen, and later objects are still collected."""

import ctypes
import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.runtime.process.memory import freeze_startup_objects, tune_malloc


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
