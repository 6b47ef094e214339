"""Builds the OpenAPI document from the routes and shapes of ``iggy_protocol.rest``."""

from __future__ import annotations

import json
import re
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import FieldInfo, fields
from starlette.responses import Response

from iggy_protocol import CommandCode
from iggy_protocol.rest import ErrorShape, Route, encode_json
from iggy_ref_server.host import SERVER_VERSION
from iggy_ref_server.web.errors import json_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send


OPENAPI_VERSION: Final = "3.1.0"
REFERENCE: Final = "#/components/schemas/{name}"
PARAMETER: Final = re.compile(r"\{(\w+)\}")

U32: Final = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
NAME: Final = {"type": "string", "minLength": 1, "maxLength": 255}
PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "client_id": U32,
    "partition_id": U32,
    "fsync": {"type": "boolean"},
    "scope": {"type": "string", "enum": ["topic", "stream", "user"]},
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
EMPTY_ERRORS: Final = frozenset({401})


def build_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Describe all routes.

    Args:
        routes: rows of the table of routes.

    Returns:
        The document, ready for JSON.
    """
    shapes = {
        shape
        for route in routes
        for shape in (route.body, route.newer_body, route.reply)
        if shape not in (None, str, bytes)
    }
    ordered = [ErrorShape, *sorted(shapes, key=str)]
    schemas, components = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    known = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, known)
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


def _describe_operation(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.name.replace("_", " ").capitalize(),
        "tags": [_tag(route)],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": _responses(route, known),
    }
    if route.body is not None:
        schema = known[route.body]
        if route.newer_body is not None:
            schema = {"anyOf": [schema, known[route.newer_body]]}
        content = {"application/json": {"schema": schema}}
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
    elif status not in EMPTY_ERRORS:
        described["content"] = {"application/json": {"schema": known[ErrorShape]}}
        if status == 400:
            described["content"] |= text
    return described


# Renders the OpenAPI document as one HTML page, without scripts or external resources.


STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; text-transform: capitalize; }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .4rem 0; }
summary { cursor: pointer; padding: .4rem .7rem; display: flex; gap: .8rem; align-items: baseline; }
details > div { padding: 0 1rem 1rem; border-top: 1px solid var(--line); }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .7rem; border-radius: .3rem; overflow: auto; }
.method { font-weight: 700; min-width: 4rem; }
.get { color: #2a7; } .post { color: #27c; } .put { color: #b70; } .delete { color: #c33; }
.note { margin-left: auto; opacity: .7; font-size: .9em; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
""".strip()


def render_page(document: dict[str, Any]) -> str:
    """Write the page.

    Args:
        document: an OpenAPI document.
    """
    info, schemas = document["info"], document["components"]["schemas"]
    sections: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            entry = _render_operation(path, method, operation)
            sections.setdefault(operation["tags"][0], []).append(entry)
    parts = [f"<h2>{escape(tag)}</h2>\n" + "\n".join(entries) for tag, entries in sections.items()]
    shapes = "\n".join(_render_schema(name, schema) for name, schema in sorted(schemas.items()))
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>'
        f"<style>\n{STYLE}\n</style></head><body>\n<h1>{title}</h1>\n"
        f"<p>{escape(info['description'])} Log in with <code>POST /users/login</code> and send the"
        f" token as <code>Authorization: Bearer …</code>. The same as"
        f' <a href="openapi.json">OpenAPI document</a>.</p>\n'
        + "\n".join(parts)
        + f"\n<h2>Shapes</h2>\n{shapes}\n</body></html>\n"
    )


def _render_operation(path: str, method: str, operation: dict[str, Any]) -> str:
    note = "token" if "security" in operation else "public"
    summary = (
        f'<summary><span class="method {method}">{method.upper()}</span>'
        f"<code>{escape(path)}</code><span>{escape(operation['summary'])}</span>"
        f'<span class="note">{note}</span></summary>'
    )
    inside = [f"<p>{escape(operation.get('description', ''))}</p>"]
    if operation["parameters"]:
        inside.append(
            _render_table(
                ("Parameter", "In", "Kind"), map(_render_parameter, operation["parameters"])
            )
        )
    if "requestBody" in operation:
        inside.append(f"<p>Body: {_render_content(operation['requestBody'])}</p>")
    rows = (
        (f"<b>{status}</b>", escape(response["description"]), _render_content(response))
        for status, response in operation["responses"].items()
    )
    inside.append(_render_table(("Answer", "When", "Content"), rows))
    return f"<details>{summary}<div>{''.join(inside)}</div></details>"


def _render_parameter(parameter: dict[str, Any]) -> tuple[str, str, str]:
    schema = parameter["schema"]
    need = "" if parameter["required"] else f", default {schema.get('default', 'none')}"
    kind = escape(_schema_kind(schema) + need)
    return f"<code>{escape(parameter['name'])}</code>", parameter["in"], kind


def _schema_kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_schema_kind(choice) for choice in schema["anyOf"])
    return str(schema.get("type", "any"))


def _render_content(described: dict[str, Any]) -> str:
    """Name the content of a body: a shape, a list of shapes, or a content type."""
    told = []
    for media, content in described.get("content", {}).items():
        for schema in content["schema"].get("anyOf", [content["schema"]]):
            listed = schema.get("items", {}).get("$ref")
            name = (listed or schema.get("$ref", "")).rpartition("/")[2]
            link = f'<a href="#{escape(name)}">{escape(name)}</a>{"[ ]" if listed else ""}'
            told.append(link if name else escape(media))
    return " or ".join(told)


def _render_schema(name: str, schema: dict[str, Any]) -> str:
    text = escape(json.dumps(schema, indent=2))
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code>'
        f"<span>{escape(schema.get('description', ''))}</span></summary>"
        f"<div><pre>{text}</pre></div></details>"
    )


def _render_table(head: tuple[str, ...], rows: Any) -> str:
    titles = "".join(f"<th>{title}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"


# The endpoints of the OpenAPI document and of the page that renders it; both are made once.


class OpenApiEndpoint:
    """Serves the OpenAPI document.

    Args:
        routes: the served routes.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes

    @cached_property
    def content(self) -> dict[str, Any]:
        """The document."""
        return build_document(self._routes)

    @cached_property
    def _encoded(self) -> bytes:
        return encode_json(self.content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await json_response(self._encoded)(scope, receive, send)


class DocsPageEndpoint:
    """Serves a page that renders the document."""

    def __init__(self, document: OpenApiEndpoint) -> None:
        self._document = document

    @cached_property
    def _rendered(self) -> str:
        return render_page(self._document.content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        response = Response(self._rendered, headers=headers, media_type="text/html")
        await response(scope, receive, send)
