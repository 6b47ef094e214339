"""The types of values: what producers take and consumers give, with a serde and without one.

Without a serde a producer takes a ``Payload``, and a consumer gives ``bytes``. Type checkers learn
it from the defaults of these type variables; the standard library has such defaults from
Python 3.13 on, so at run time there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from iggy_protocol import Buffer

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)
    P = TypeVar("P", default="Payload")
    P_contra = TypeVar("P_contra", contravariant=True, default="Payload")
else:
    from typing import TypeVar

    V = TypeVar("V")
    P = TypeVar("P")
    P_contra = TypeVar("P_contra", contravariant=True)


Payload: TypeAlias = Buffer | str
"""What a producer without a serde sends: bytes of any kind, or text, which is written as UTF-8."""
