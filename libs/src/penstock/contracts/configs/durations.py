"""Durations in configurations, by ISO 8601 in the form that Java's `Duration.parse` accepts. Pure."""

import re

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d{1,19})D)?"
    r"(?:T(?=[-+\d])(?:([-+]?\d{1,19})H)?(?:([-+]?\d{1,19})M)?(?:([-+]?\d{1,19})(?:[.,](\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_SECONDS_MAX = 2**63 - 1  # of Java's durations
_NANOS_PER_S = 1_000_000_000
_NANOS_PER_MS = 1_000_000


def parse_duration_ms(text: str) -> int | None:
    """The duration in ms, a fraction as a whole one. None if the text is no duration of Java.

    Parts may be negative: PT1H-30M is half an hour. A day has 24 hours, so there are no months and years.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.group(2, 3, 4, 5)):
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in match.group(2, 3, 4, 5))
    fraction = int((match.group(6) or "").ljust(9, "0"))
    if (match.group(5) or "").startswith("-"):
        fraction = -fraction
    nanos = ((days * 24 + hours) * 60 + minutes) * 60 * _NANOS_PER_S + seconds * _NANOS_PER_S + fraction
    if match.group(1) == "-":
        nanos = -nanos
    if abs(nanos) // _NANOS_PER_S > _SECONDS_MAX:
        return None
    whole = -(-abs(nanos) // _NANOS_PER_MS)
    return whole if nanos >= 0 else -whole
