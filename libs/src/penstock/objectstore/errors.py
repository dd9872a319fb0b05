"""What object stores raise, each of a kind that says what the caller does next."""

from penstock.contracts.errors import Conflict, Invalid, Unavailable


class NotFound(Invalid):
    """No object has this key."""


class AlreadyExists(Conflict):
    """A create-only put found an object under its key."""


class EtagMismatch(Conflict):
    """A replacing put found another version of the object, or none."""


class Throttled(Unavailable):
    """The store asks for fewer requests; try again later."""
