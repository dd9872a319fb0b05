"""What a nats-server refuses to its user: understood from the server's words, and logged without flooding the log."""

import re

import msgspec
import structlog

SUBJECTS_LOGGED_MAX = 100  # answers go to ever new subjects, and a refusal of each must not fill the disk
# The server's words as the client hands them on: in lower case, the subject too.
_REJECTION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')

log = structlog.get_logger()


class Rejection(msgspec.Struct, frozen=True):
    """The server does not let this user send to a subject, or listen to it."""

    subject: str  # in lower case
    is_subscription: bool


def parse_rejection(text: str) -> Rejection | None:
    """The refusal that an error of the client tells of, if it does."""
    found = _REJECTION.search(text.lower())
    return Rejection(found[2], found[1] == "subscription") if found else None


class RejectionLog:
    """Logs each refused subject once."""

    def __init__(self) -> None:
        self._logged: set[Rejection] = set()

    def note(self, rejection: Rejection) -> None:
        """Log the refusal if it is a new one, and there were not too many."""
        if rejection in self._logged or len(self._logged) >= SUBJECTS_LOGGED_MAX:
            return
        self._logged.add(rejection)
        verb = "subscribe" if rejection.is_subscription else "publish"
        log.error("nats_permission_denied", verb=verb, subject=rejection.subject)
