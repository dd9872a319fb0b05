"""Pages of answers that are too long for one message: the first names after a cursor, up to a number and a size."""

from collections.abc import Callable, Iterable
from heapq import nsmallest

from penstock_sequencer.core.state.limits import AnswerLimits

NUMBER_BYTES = 9  # the longest integer in an answer
LETTER_BYTES_MAX = 4  # in UTF-8


def page_of(
    names: Iterable[str], after: str | None, limits: AnswerLimits, size_bytes: Callable[[str], int]
) -> tuple[list[str], bool]:
    """The first names after `after` in their order, at least one, and whether there are more.

    Without a cursor all names, in the given order. An empty cursor is before all names, also before an empty one.

    The cursor is a name and not a position. While a client pages, names are added and removed. No other name may be
    left out or come twice because of that.
    """
    if after is None:
        return list(names), False
    found = nsmallest(limits.names_listed_max + 1, (name for name in names if name > after or not after))
    left_bytes = limits.listed_bytes_max
    for count, name in enumerate(found):
        if count == limits.names_listed_max or left_bytes <= 0:
            return found[:count], True
        left_bytes -= size_bytes(name)
    return found, False


def text_bytes(text: str) -> int:
    """The size of a text in an answer, or a little more."""
    return NUMBER_BYTES + (len(text) if text.isascii() else LETTER_BYTES_MAX * len(text))
