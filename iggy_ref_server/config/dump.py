"""Writes a configuration as TOML that loads back to the same configuration.

Used for ``runtime/current_config.toml``, which tells tools the bound addresses, and for the display
at a start, which hides secrets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from iggy_ref_server.config.keys import Leaf, branches_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from iggy_ref_server.config.kinds import TomlValue
    from iggy_ref_server.config.schema import ServerConfig
    from iggy_ref_server.config.section import Section

__all__ = ["dump_config"]

HIDDEN: Final = "******"


def dump_config(
    config: ServerConfig, addresses: Mapping[str, str] | None = None, *, show_secrets: bool = True
) -> str:
    """Write a configuration as TOML.

    Args:
        addresses: the bound addresses by listener: ``tcp``, ``http``, ``quic``, ``websocket``.
        show_secrets: whether to write secrets; only for a file with mode 0600.
    """
    for door, address in (addresses or {}).items():
        config = replace(config, **{door: replace(getattr(config, door), address=address)})
    return "\n".join(_section_lines(config, "", "", show_secrets=show_secrets)).lstrip() + "\n"


def _section_lines(
    section: Section, name: str, header: str, *, show_secrets: bool
) -> Iterator[str]:
    """Write a section: its values first, because in TOML they would belong to the next section."""
    values = list(_value_lines(section, show_secrets=show_secrets))
    if values:
        yield f"\n{header}"
    yield from values
    for key, branch in branches_of(type(section)).items():
        value = getattr(section, branch.attribute)
        below = f"{name}.{key}".removeprefix(".")
        if branch.is_array:
            for element in value:
                yield from _section_lines(element, below, f"[[{below}]]", show_secrets=show_secrets)
        elif not isinstance(branch.below, Leaf):
            yield from _section_lines(value, below, f"[{below}]", show_secrets=show_secrets)


def _value_lines(section: Section, *, show_secrets: bool) -> Iterator[str]:
    for key, branch in branches_of(type(section)).items():
        value = getattr(section, branch.attribute)
        if isinstance(branch.below, Leaf) and value is not None:
            is_hidden = branch.below.is_secret and value and not show_secrets
            written = HIDDEN if is_hidden else branch.below.kind.write(value)
            yield f"{key} = {_toml(written)}"
        elif branch.is_array and not value:
            yield f"{key} = []"


def _toml(value: TomlValue) -> str:
    """Write a value; a TOML string is a JSON string, but for DEL, which TOML must escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
