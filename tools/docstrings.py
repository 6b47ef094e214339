"""Reads docstrings as this project writes them: a text, and sections of entries.

Sends one message.

Args:
    value: a value, or a ``Message``.

Raises:
    SerdeError: the value cannot be written.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
ENTRY = re.compile(r"^    (\S[^:]*): (.*)$")


@dataclass(slots=True)
class Docstring:
    """A docstring in its parts.

    Attributes:
        text: what stands before and between the sections, as Markdown.
        sections: entries of each section: a name, and what is said of it.
    """

    text: str = ""
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first paragraph, on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())

    def of(self, section: str) -> dict[str, str]:
        """Return what a section says of each name."""
        return dict(self.sections.get(section, []))


def parse(value: object) -> Docstring:
    """Read the docstring of a value; without one, it is empty."""
    return parse_text(inspect.getdoc(value) or "")


def parse_text(docstring: str) -> Docstring:
    """Read a docstring."""
    found, text = Docstring(), list[str]()
    entries: list[tuple[str, str]] | None = None
    for line in docstring.splitlines():
        section, entry = SECTION.match(line), ENTRY.match(line)
        if section:
            entries = found.sections.setdefault(section[1], [])
        elif entries is None or (line and not line.startswith(" ")):
            entries = None
            text.append(line if line.startswith("    ") else as_markdown(line))
        elif entry and section_has_names(found, entries):
            entries.append((entry[1], as_markdown(entry[2])))
        elif line.strip():
            name, said = entries.pop() if entries else ("", "")
            entries.append((name, f"{said} {as_markdown(line.strip())}".strip()))
    found.text = re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip("\n")
    return found


def section_has_names(found: Docstring, entries: list[tuple[str, str]]) -> bool:
    """Tell whether a section lists names; what is returned has none."""
    return entries is not found.sections.get("Returns") and entries is not found.sections.get(
        "Yields"
    )


def as_markdown(text: str) -> str:
    """Turn the marks of docstrings into those of Markdown."""
    return text.replace("``", "`").rstrip()
