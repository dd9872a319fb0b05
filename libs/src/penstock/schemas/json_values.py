"""Values of the libraries as values that JSON has."""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

_DEPTH_MAX = 100  # printers of JSON and YAML call themselves for each level
_INTEGER_BITS_MAX = 1_024  # Python prints no integer of more than some thousand digits


def json_value(value: Any, depth: int = 0) -> Any:
    """The same value in JSON.

    Bytes become hexadecimal, as everywhere in Penstock. Decimals, times and UUIDs become texts, and so do numbers that
    JSON has not (NaN). `ValueError` for an integer that is too long, and for a value in too many others.
    """
    if depth > _DEPTH_MAX:
        raise ValueError(f"it is nested more than {_DEPTH_MAX} times")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # A text of JSON may have half a pair of surrogates, which UTF-8 has not.
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS_MAX:
            raise ValueError(f"an integer of {value.bit_length()} bits")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _name_of(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {json_value(str(name)): json_value(each, depth + 1) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [json_value(each, depth + 1) for each in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
