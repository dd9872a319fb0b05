"""Lengths of time as users write them: 30s, 15m, 2h, 7d."""

import re

DURATION_HELP = "such as 30s, 15m, 2h or 7d"
_DURATION = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhd])")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int | None:
    """The length in ms, None if the text is none."""
    found = _DURATION.fullmatch(text)
    return int(found["count"]) * _UNITS_MS[found["unit"]] if found else None
