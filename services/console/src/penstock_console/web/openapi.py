"""The description of `/api/v1` as OpenAPI 3.1, made from the routes and their structs."""

import re
from typing import Any

import msgspec

from penstock_console.kafka.records import Record, RecordQuery
from penstock_console.web.routes import ACTIONS, API, PAGES, TAIL, Action, Page

_REFERENCE = "#/components/schemas/{name}"
_ERRORS = {
    "400": "The request is malformed, or cannot be met.",
    "401": "A login is needed.",
    "403": "The user may not do this, or changes are not switched on.",
    "404": "There is no such thing.",
    "503": "The cluster does not answer.",
}


class Failure(msgspec.Struct, frozen=True):
    """The answer to a request that failed."""

    error: str


def description(version: str) -> dict[str, Any]:
    """The document at `/api/v1/openapi.json`."""
    types = [each for page in PAGES for each in (page.result, page.query) if each is not None]
    types += [each for action in ACTIONS for each in (action.result, action.body)]
    types += [list[Record], Failure]
    (*schemas, failure), components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    by_type = dict(zip(map(id, types), schemas, strict=False))
    errors = {
        code: {"description": text, "content": {"application/json": {"schema": failure}}}
        for code, text in _ERRORS.items()
    }
    paths: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        fields = _fields(components, page.query)
        paths.setdefault(API + (page.api_path or page.path), {})["get"] = {
            "summary": page.title,
            "description": page.view.__doc__ or "",
            "parameters": [*_path_parameters(page), *fields],
            "responses": {"200": _json("The content of the page.", by_type[id(page.result)]), **errors},
        }
    for action in ACTIONS:
        paths.setdefault(API + action.path, {})["post"] = {
            "summary": action.summary,
            "parameters": _path_parameters(action),
            "requestBody": {"required": True, "content": {"application/json": {"schema": by_type[id(action.body)]}}},
            "responses": {"200": _json("The change is made.", by_type[id(action.result)]), **errors},
        }
    paths[API + TAIL] = {"get": _tail(_fields(components, RecordQuery), schemas[-1], errors)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock console", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {name: {"type": "http", "scheme": name} for name in ("basic", "bearer")},
        },
    }


def _tail(fields: list[dict[str, Any]], records: Any, errors: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": "New records as they come",
        "description": "Server-sent events: each has a list of records, perhaps empty, and the last one is `end`.",
        "parameters": [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
            *(each for each in fields if each["name"] in ("partition", "filter")),
        ],
        "responses": {
            "200": {"description": "The events.", "content": {"text/event-stream": {"schema": records}}},
            **errors,
        },
    }


def _json(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _path_parameters(route: Page | Action) -> list[dict[str, Any]]:
    numbers = route.numbers if isinstance(route, Page) else ()
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if name in numbers else "string"},
        }
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _fields(components: dict[str, Any], query: type[Any] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = components[query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in schema["properties"].items()
        if (query, name) != (RecordQuery, "topic")  # it is in the path
    ]
