"""The verbs of uploads in parts, for landing stores, which take whole objects only."""

from collections.abc import Sequence

from penstock.objectstore.errors import Full
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    PartedPut,
    Unfinished,
    check_listing,
    check_parts,
)


class WithoutParts:
    """The three verbs: an upload cannot begin, so none is unfinished."""

    async def begin_parts(self, key: str, part_bytes: int) -> PartedPut:
        check_parts(key, part_bytes)
        raise Full(f"an object in parts is too large for the landing store: {key}")

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        check_listing(prefix, "", limit)
        return ()

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Does nothing: there are no uploads in parts."""
