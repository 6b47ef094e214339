"""Builds the OpenAPI document from the routes and shapes of ``iggy_protocol.rest``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import FieldInfo, fields

from iggy_protocol import CommandCode
from iggy_protocol.rest import ErrorShape
from iggy_ref_server.host import SERVER_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol.rest import Route

__all__ = ["describe"]

OPENAPI_VERSION: Final = "3.1.0"
REFERENCE: Final = "#/components/schemas/{name}"
PARAMETER: Final = re.compile(r"\{(\w+)\}")

U32: Final = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
NAME: Final = {"type": "string", "minLength": 1, "maxLength": 255}
PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "client_id": U32,
    "partition_id": U32,
    "fsync": {"type": "boolean"},
}
NUMBER_OR_NAME: Final = "The number or the name; a text of digits is a number."

ERRORS: Final = {
    400: "A field breaks a rule, or the request is malformed.",
    401: "The access token is missing or invalid.",
    403: "The user lacks the permission.",
    404: "The resource does not exist.",
    413: "The body is too large.",
    415: "The content type is not application/json.",
    422: "The JSON has another shape.",
}
BODY_ERRORS: Final = frozenset({413, 415, 422})
# Errors with an empty body.
SILENT: Final = frozenset({401})


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """Describe all routes.

    Args:
        routes: rows of the table of routes.

    Returns:
        The document, ready for JSON.
    """
    shapes = {
        shape
        for route in routes
        for shape in (route.body, route.reply)
        if shape not in (None, str, bytes)
    }
    ordered = [ErrorShape, *sorted(shapes, key=str)]
    schemas, components = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    known = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Iggy API",
            "version": SERVER_VERSION,
            "description": "Message streaming over HTTP: streams, topics, messages, users.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
    }


def _operation(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.name.replace("_", " ").capitalize(),
        "tags": [_tag(route)],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route, known),
    }
    if route.body is not None:
        content = {"application/json": {"schema": known[route.body]}}
        described["requestBody"] = {"required": True, "content": content}
        described["description"] = _first_line(route.body)
    if not route.public:
        described["security"] = [{"token": []}]
    return described


def _tag(route: Route) -> str:
    literal = [part for part in route.path.split("/") if part and "{" not in part]
    if "topics" in literal and literal[-1] not in ("topics", "purge"):
        return literal[2]
    return "topics" if "topics" in literal else (literal or ["server"])[0]


def _first_line(shape: type[Any]) -> str:
    return (shape.__doc__ or "").partition("\n")[0]


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": PARAMETERS.get(name, NAME),
            **({} if name in PARAMETERS else {"description": NUMBER_OR_NAME}),
        }
        for name in PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    return [_query_parameter(field) for field in fields(route.query)]


def _query_parameter(field: FieldInfo) -> dict[str, Any]:
    schema = msgspec.json.schema(field.type)
    if not field.required and field.default is not None:
        schema["default"] = field.default
    return {
        "name": field.encode_name,
        "in": "query",
        "required": field.required,
        "schema": schema,
    }


def _responses(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done."}
    if route.reply is str:
        success["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif route.reply is bytes:
        schema = {"type": "string", "contentMediaType": "application/zip"}
        success["content"] = {"application/zip": {"schema": schema}}
    elif route.reply is not None:
        success["content"] = {"application/json": {"schema": known[route.reply]}}
    responses = {str(route.success): success}
    for status in _possible_errors(route):
        responses[str(status)] = _error(status, known)
    return responses


def _possible_errors(route: Route) -> list[int]:
    if not isinstance(route.operation, CommandCode) and route.body is None:
        return []
    return [status for status in ERRORS if route.body is not None or status not in BODY_ERRORS]


def _error(status: int, known: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": ERRORS[status]}
    text = {"text/plain": {"schema": {"type": "string"}}}
    if status in BODY_ERRORS:
        described["content"] = text
    elif status not in SILENT:
        described["content"] = {"application/json": {"schema": known[ErrorShape]}}
        if status == 400:
            described["content"] |= text
    return described
