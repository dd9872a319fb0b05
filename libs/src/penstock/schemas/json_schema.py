"""Records with a JSON Schema: the payload is JSON."""

import json
from typing import Any

from penstock.contracts.errors import Invalid
from penstock.schemas.json_values import json_value

ERRORS = (ValueError, RecursionError)


class JsonReader:
    """Reads the payloads of one schema. They are not checked: their producer did that."""

    def __init__(self, schema: str) -> None:
        """`Invalid` if the schema is no JSON."""
        try:
            found = json.loads(schema)
        except ERRORS as error:
            raise Invalid(f"its schema is no JSON: {type(error).__name__}") from error
        names = (found.get("title"), found.get("$id")) if isinstance(found, dict) else ()
        self._name = next((each for each in names if isinstance(each, str)), "")

    def read(self, payload: bytes) -> tuple[str, Any]:
        """The title of the schema, and the value; `Invalid` if it is no JSON."""
        try:
            return self._name, json_value(json.loads(payload))
        except ERRORS as error:
            raise Invalid(f"the payload is no JSON: {error}") from error
