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


def parse_filter(text: str) -> Filter:
    """Whether a record fits the expression; `Invalid` with the place of the mistake if it is none."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        expression = jmespath.compile(text)
    except JMESPathError as error:
        raise Invalid(
            f"not a JMESPath expression (numbers stand in backticks, texts in single quotes): {error}"
        ) from error

    def fits(record: Any) -> bool:
        try:
            return bool(expression.search(searchable(record)))
        except JMESPathError:  # a function does not fit the type of this record's value
            return False

    return fits


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
