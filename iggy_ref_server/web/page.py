"""Renders the OpenAPI document as one HTML page, without scripts or external resources."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

__all__ = ["render"]

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


def render(document: dict[str, Any]) -> str:
    """Write the page.

    Args:
        document: an OpenAPI document.
    """
    info, schemas = document["info"], document["components"]["schemas"]
    sections: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            entry = _operation(path, method, operation)
            sections.setdefault(operation["tags"][0], []).append(entry)
    parts = [f"<h2>{escape(tag)}</h2>\n" + "\n".join(entries) for tag, entries in sections.items()]
    shapes = "\n".join(_shape(name, schema) for name, schema in sorted(schemas.items()))
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


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    note = "token" if "security" in operation else "public"
    summary = (
        f'<summary><span class="method {method}">{method.upper()}</span>'
        f"<code>{escape(path)}</code><span>{escape(operation['summary'])}</span>"
        f'<span class="note">{note}</span></summary>'
    )
    inside = [f"<p>{escape(operation.get('description', ''))}</p>"]
    if operation["parameters"]:
        inside.append(_table(("Parameter", "In", "Kind"), map(_parameter, operation["parameters"])))
    if "requestBody" in operation:
        inside.append(f"<p>Body: {_content(operation['requestBody'])}</p>")
    rows = (
        (f"<b>{status}</b>", escape(response["description"]), _content(response))
        for status, response in operation["responses"].items()
    )
    inside.append(_table(("Answer", "When", "Content"), rows))
    return f"<details>{summary}<div>{''.join(inside)}</div></details>"


def _parameter(parameter: dict[str, Any]) -> tuple[str, str, str]:
    schema = parameter["schema"]
    need = "" if parameter["required"] else f", default {schema.get('default', 'none')}"
    kind = escape(_kind(schema) + need)
    return f"<code>{escape(parameter['name'])}</code>", parameter["in"], kind


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_kind(choice) for choice in schema["anyOf"])
    return str(schema.get("type", "any"))


def _content(described: dict[str, Any]) -> str:
    """Name what is in a body: a shape, a list of them, or another type of content."""
    told = []
    for media, content in described.get("content", {}).items():
        schema = content["schema"]
        listed = schema.get("items", {}).get("$ref")
        name = (listed or schema.get("$ref", "")).rpartition("/")[2]
        link = f'<a href="#{escape(name)}">{escape(name)}</a>{"[ ]" if listed else ""}'
        told.append(link if name else escape(media))
    return " or ".join(told)


def _shape(name: str, schema: dict[str, Any]) -> str:
    text = escape(json.dumps(schema, indent=2))
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code>'
        f"<span>{escape(schema.get('description', ''))}</span></summary>"
        f"<div><pre>{text}</pre></div></details>"
    )


def _table(head: tuple[str, ...], rows: Any) -> str:
    titles = "".join(f"<th>{title}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"
