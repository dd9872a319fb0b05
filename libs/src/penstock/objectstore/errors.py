"""The errors of object stores, each of a kind that says what the caller does next."""

from collections.abc import Sequence

from penstock.contracts.errors import Conflict, Invalid, Unavailable


class NotFound(Invalid):
    """No object has this key."""


class AlreadyExists(Conflict):
    """A create-only put found an object under its key."""


class EtagMismatch(Conflict):
    """A replacing put found another version of the object, or none."""


class Throttled(Unavailable):
    """The store asks for fewer requests; try again later."""


class NotDeleted(Unavailable):
    """Some of the keys of one call are in doubt, all others are deleted.

    `keys` are those in doubt, `rejected` those of them that the store will not delete, however often it is asked.
    """

    def __init__(self, why: str, keys: Sequence[str], rejected: Sequence[str] = ()) -> None:
        super().__init__(f"{len(keys)} objects not deleted, the first of them {keys[0]}: {why}")
        self.why = why
        self.keys = tuple(keys)
        self.rejected = tuple(rejected)
