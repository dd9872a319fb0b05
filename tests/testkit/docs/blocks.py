"""Generated blocks of a documentation page, and the tables in them.

A block stands between the comments `made: NAME` and `made: end`; all other text of a page is written by hand.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- made: end -->)", re.DOTALL)

Maker = Callable[[], Iterable[str]]  # the lines of a block


def fill(page: str, makers: Mapping[str, Maker]) -> str:
    """The page with the lines of its makers in each block; `LookupError` for a block without a maker."""
    return BLOCK.sub(lambda found: found[1] + "".join(f"{line}\n" for line in makers[found[2]]()) + found[3], page)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [_row(head), _row(["---"] * len(head)), *[_row(row) for row in rows]]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
