"""The copy of a landing store: it copies what is missing, and its failures are errors with a reason."""

from collections.abc import Sequence

import pytest

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, Unavailable
from penstock.objectstore import Full
from penstock.objectstore.memory import MemoryStore
from penstock_sequencer.journal_move.landing import LandingCopy


class FailingStore(MemoryStore):
    """A store that takes nothing."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self._failure = failure

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        raise self._failure


async def filled(count: int = 40) -> MemoryStore:
    store = MemoryStore()
    for number in range(count):
        await store.put(f"c/segments/{number}", [b"records %d" % number])
    return store


async def test_all_objects_are_copied_and_later_ones_with_the_next_copy() -> None:
    source, target, lines = await filled(), MemoryStore(), list[str]()
    copy = LandingCopy(source, target, report=lines.append)
    await copy.copy()
    await source.put("c/segments/late", [b"late"])
    await copy.copy()
    assert [each.key for each in await target.list("")] == [each.key for each in await source.list("")]
    assert await target.get("c/segments/late") == b"late"
    assert lines == ["copying 40 objects of the landing store", "copying 1 objects of the landing store"]


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (Full("8 MiB are left"), Invalid, "the new landing store has no room: 8 MiB are left"),
        (Unavailable("no answer"), Unavailable, "no answer"),
    ],
)
async def test_a_copy_that_fails_raises_the_error_itself(failure: Exception, kind: type[Exception], text: str) -> None:
    """The command prints the text of an error. A group of errors would end it with a traceback."""
    copy = LandingCopy(await filled(), FailingStore(failure), report=lambda line: None)
    with pytest.raises(kind, match=text):
        await copy.copy()
