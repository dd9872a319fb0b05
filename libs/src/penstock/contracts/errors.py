"""Errors named for what the caller does next; every error of our own is one of these five kinds."""


class PenstockError(Exception):
    """The base of the five kinds; never raised itself."""


class Unavailable(PenstockError):
    """Try again later: the other side did not answer, and whether it acted is unknown."""


class Undelivered(Unavailable):
    """Try again at once: nobody was there to receive it, so it surely had no effect."""


class Conflict(PenstockError):
    """Refresh what you know, then decide again: the thing is not in the state you expected."""


class Fenced(PenstockError):
    """Stop: somebody newer took over, or this came too late ever to be accepted."""


class Invalid(PenstockError):
    """Mend the call: it can never succeed as it is."""


class Corrupt(PenstockError):
    """Raise the alarm: bytes are not what they were when they were written."""
