"""The fields of HTML forms."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError

from penstock.contracts.errors import Invalid


async def fields_of(request: web.Request) -> dict[str, str]:
    """The texts of a form; `Invalid` if its body is malformed."""
    try:
        fields = await request.post()
    except (ValueError, LookupError, AssertionError, HttpProcessingError) as error:
        raise Invalid(f"the body is no form: {error}") from error
    return {name: value for name, value in fields.items() if isinstance(value, str)}


def present(fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a form. A number that is left empty has its default; a marked box has the value `on`."""
    numbers = ("partition", "partitions", "count")
    kept = {name: value for name, value in fields.items() if value != "" or name not in numbers}
    return {name: True if value == "on" and name.startswith("is_") else value for name, value in kept.items()}
