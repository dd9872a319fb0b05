"""A configuration, and checks of values: each returns the reason why a value is invalid, "" for a valid one. Pure."""

import math
import re
from collections.abc import Callable

import msgspec

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_DECIMAL = re.compile(r"\d{1,20}(\.\d{1,20})?(e-?\d{1,3})?", re.ASCII | re.IGNORECASE)


class TopicConfig(msgspec.Struct, frozen=True):
    """One configuration: Kafka's name, type and default, and the check of a value ("" if it is valid)."""

    name: str
    kind: str  # Kafka's words: BOOLEAN, INT, LONG, DOUBLE, STRING, LIST
    default: str
    documentation: str
    validation_error: Callable[[str], str]
    cluster_name: str = ""  # the name of its cluster default, "" if there is none


def whole_number(low: int, high: int) -> Callable[[str], str]:
    """A check for whole numbers from `low` to `high`, both included."""

    def validation_error(value: str) -> str:
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(value) <= high:
            return ""
        return f"must be a whole number from {low} to {high}"

    return validation_error


def ratio(value: str) -> str:
    """Check for a number from 0 to 1."""
    return "" if _DECIMAL.fullmatch(value) and float(value) <= 1 else "must be a number from 0 to 1"


def decimal(value: str) -> str:
    """Check for a number that is not negative."""
    is_number = _DECIMAL.fullmatch(value) and math.isfinite(float(value))
    return "" if is_number else "must be a number that is not negative"


def only(*values: str) -> Callable[[str], str]:
    """A check for one of these words."""

    def validation_error(value: str) -> str:
        return "" if value in values else f"only {' or '.join(values)} is supported"

    return validation_error
