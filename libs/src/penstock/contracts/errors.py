"""The five kinds of errors, named for the caller's next step; every error of Penstock's own is one of them."""


class PenstockError(Exception):
    """The base class of the five kinds; never raised itself."""


class Unavailable(PenstockError):
    """Try again later: the other side did not answer, and the outcome is unknown."""


class Undelivered(Unavailable):
    """Try again at once: no process received the message, so it had no effect."""


class Conflict(PenstockError):
    """Refresh the view, then decide again: the object is not in the expected state."""


class Fenced(PenstockError):
    """Stop: a newer process took over, or the request came too late and is never accepted."""


class Invalid(PenstockError):
    """Correct the call: it can never succeed as it is."""


class Corrupt(PenstockError):
    """Raise the alarm: the bytes differ from those that were written."""
