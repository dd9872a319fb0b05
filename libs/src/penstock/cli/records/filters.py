"""Expressions that choose records: JMESPath over key, value, headers and place of a record.

A value that is a JSON object or list is searched as such: `value.price > `100``. So is a value that a schema decodes.
Headers are a mapping of texts.
"""

import json
from collections.abc import Callable
from typing import Any

from penstock.cli.records.decoded import finding_of
from penstock.contracts.errors import Invalid
from penstock.schemas.decoding import Decoded

Filter = Callable[[Any], bool]
CHARACTERS_MAX = 4_000
# Each list of parts, such as [@, @], makes its value larger, and a pipe leads it into the next one. So a short
# expression could make a value of any size. This limits the product of the lengths of all such lists.
GROWTH_MAX = 10_000


def parse_filter(text: str) -> Filter:
    """Whether a record fits the expression; `Invalid` with the place of the mistake if it is none."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(text) > CHARACTERS_MAX:
        raise Invalid(f"a filter of {len(text)} characters is too long: at most {CHARACTERS_MAX}")
    try:
        expression = jmespath.compile(text)
        growth = _growth(expression.parsed)
    except (JMESPathError, RecursionError) as error:
        raise Invalid(
            f"not a JMESPath expression (numbers stand in backticks, texts in single quotes): {error}"
        ) from error
    if growth > GROWTH_MAX:
        raise Invalid(f"the filter has too many lists: their lengths multiplied are more than {GROWTH_MAX:,}")

    def fits(record: Any) -> bool:
        try:
            return bool(expression.search(searchable(record)))
        except (JMESPathError, RecursionError):  # a function does not fit the type of this record's value
            return False

    return fits


def _growth(node: dict[str, Any]) -> int:
    """How many times as large as a record the values of an expression can become, at most."""
    found = 1
    if node["type"] in ("multi_select_list", "multi_select_dict"):
        found = max(len(node["children"]), 1)
    elif node["type"] == "literal":
        found = _size(node["value"])
    for child in node["children"]:
        found *= _growth(child)
    return found


def _size(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(sum(map(_size, parts)), 1)


def searchable(record: Any) -> dict[str, Any]:
    """The record as the expression sees it."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        "key": _searchable(record, "key"),
        "value": _searchable(record, "value"),
        "headers": {name: _text(value) for name, value in record.headers},
    }


def _searchable(record: Any, name: str) -> Any:
    found = finding_of(record, name)
    return found.value if isinstance(found, Decoded) else _parsed(getattr(record, name))


def _parsed(data: bytes | None) -> Any:
    text = _text(data)
    if text is None or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
