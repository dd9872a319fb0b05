"""The errors of object stores; the kind of an error determines the caller's next step."""

from collections.abc import Sequence

from penstock.contracts.errors import Conflict, Invalid, Unavailable


class NotFound(Invalid):
    """No object has this key."""


class RangeBeyond(Invalid):
    """The object ends before the end of the range."""


class AlreadyExists(Conflict):
    """A create-only put found an object under its key."""


class Full(Invalid):
    """The store has no room for the object, which was not stored; another store may have room."""


class EtagMismatch(Conflict):
    """A replacing put found another version of the object, or none."""


class Throttled(Unavailable):
    """The store demands fewer requests; try again later."""


class NotDeleted(Unavailable):
    """The deletion of some keys of one call failed or is in doubt; all others are deleted.

    `keys` has these keys. The store rejects the deletion of those in `rejected`: a retry does not help.
    """

    def __init__(self, why: str, keys: Sequence[str], rejected: Sequence[str] = ()) -> None:
        super().__init__(f"{len(keys)} objects not deleted, the first of them {keys[0]}: {why}")
        self.why = why
        self.keys = tuple(keys)
        self.rejected = tuple(rejected)

    @property
    def is_final(self) -> bool:
        """Whether the store rejects the deletion of all these keys, so that no retry helps."""
        return set(self.keys) <= set(self.rejected)


def range_beyond(key: str, position: int, length: int) -> RangeBeyond:
    """The error for a range that ends after the object."""
    return RangeBeyond(f"range of {length} bytes at {position} goes beyond the end of {key}")
