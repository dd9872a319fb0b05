"""Permissions that a nats-server denies: parsed from the server's error text, and logged without flooding the log."""

import re

import msgspec
import structlog

SUBJECTS_LOGGED_MAX = 100  # every answer has a new subject, and a log line for each could fill the disk
# The server's error text as the client passes it on: all in lower case, the subject too.
_REJECTION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')

log = structlog.get_logger()


class Rejection(msgspec.Struct, frozen=True):
    """The server does not let this user publish to a subject, or subscribe to it."""

    subject: str  # in lower case
    is_subscription: bool


def parse_rejection(text: str) -> Rejection | None:
    """The rejection in an error text of the client, or None."""
    found = _REJECTION.search(text.lower())
    return Rejection(found[2], found[1] == "subscription") if found else None


class RejectionLog:
    """Logs each rejected subject once."""

    def __init__(self) -> None:
        self._logged: set[Rejection] = set()

    def record(self, rejection: Rejection) -> None:
        """Log the rejection if it is new and the limit is not reached."""
        if rejection in self._logged or len(self._logged) >= SUBJECTS_LOGGED_MAX:
            return
        self._logged.add(rejection)
        verb = "subscribe" if rejection.is_subscription else "publish"
        log.error("nats_permission_denied", verb=verb, subject=rejection.subject)
