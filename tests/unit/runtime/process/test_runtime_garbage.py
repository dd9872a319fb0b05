"""What stays is set aside, and what comes later is still collected."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.runtime.process.garbage import set_aside_what_stays


class Node:
    """Something that can refer to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_later_collections_look_only_at_what_came_later() -> None:
    stays = [[] for _ in range(1_000)]  # type: ignore[var-annotated]
    set_aside_what_stays()
    assert gc.get_freeze_count() >= len(stays)
    assert not any(each is stays for each in gc.get_objects())


def test_a_cycle_that_is_made_and_dies_later_is_collected() -> None:
    set_aside_what_stays()
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


def test_a_cycle_that_is_dead_already_is_not_kept() -> None:
    gone = weakref.ref(Node())
    set_aside_what_stays()
    assert gone() is None
