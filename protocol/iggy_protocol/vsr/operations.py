"""Which operation stands for which command in which dialect, and the result sections of replies.

Commands that change something have an operation of their own; all others travel as
``NON_REPLICATED`` with their code in the head. From 0.10 on one operation stands for all updates;
the first byte of its body, the scope, says of what.

The operation of a reply says whether its body begins with a result section:

    0   u32  count       0: the payload follows; else nothing follows the entries
    4   u32  index, u32 code, so often; the request failed with the first code

Some replies carry an operation that clients never send, because a server rewrites the request
before it commits it.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11, V0_12_0, ByDialect, Dialect
from iggy_protocol.errors import InvalidField, TruncatedField, UnknownDiscriminant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol.layout import Buffer


REGISTER: Final = 1
NON_REPLICATED: Final = 2
LOGOUT: Final = 3
UPDATE_RESOURCE: Final = 150
DELETE_SEGMENTS: Final = 138
SEND_MESSAGES_OPERATION: Final = 160

UPDATE_RESOURCE_CODE: Final = 16
"""The code of the operation for all updates; the commands keep codes of their own."""

SESSION_OPERATIONS: Final = MappingProxyType(
    {REGISTER: CommandCode.REGISTER, LOGOUT: CommandCode.LOGOUT_USER}
)
METADATA_OPERATIONS: Final = MappingProxyType(
    {
        128: CommandCode.CREATE_STREAM,
        129: CommandCode.UPDATE_STREAM,
        130: CommandCode.DELETE_STREAM,
        131: CommandCode.PURGE_STREAM,
        132: CommandCode.CREATE_TOPIC,
        133: CommandCode.UPDATE_TOPIC,
        134: CommandCode.DELETE_TOPIC,
        135: CommandCode.PURGE_TOPIC,
        136: CommandCode.CREATE_PARTITIONS,
        137: CommandCode.DELETE_PARTITIONS,
        DELETE_SEGMENTS: CommandCode.DELETE_SEGMENTS,
        139: CommandCode.CREATE_CONSUMER_GROUP,
        140: CommandCode.DELETE_CONSUMER_GROUP,
        141: CommandCode.CREATE_USER,
        142: CommandCode.UPDATE_USER,
        143: CommandCode.DELETE_USER,
        144: CommandCode.CHANGE_PASSWORD,
        145: CommandCode.UPDATE_PERMISSIONS,
        146: CommandCode.CREATE_PERSONAL_ACCESS_TOKEN,
        147: CommandCode.DELETE_PERSONAL_ACCESS_TOKEN,
        148: CommandCode.JOIN_CONSUMER_GROUP,
        149: CommandCode.LEAVE_CONSUMER_GROUP,
    }
)
METADATA_CODES: Final[frozenset[int]] = frozenset(METADATA_OPERATIONS.values())
"""The commands that change the metadata, and joins and leaves of groups."""
PARTITION_OPERATIONS: Final = MappingProxyType(
    {
        SEND_MESSAGES_OPERATION: CommandCode.SEND_MESSAGES,
        161: CommandCode.STORE_CONSUMER_OFFSET,
        162: CommandCode.DELETE_CONSUMER_OFFSET,
    }
)
RETIRED_OPERATIONS: Final = frozenset({129, 131, 133, 135, 142})
"""Those of 0.9 that later dialects do not have."""

UPDATED_BY_SCOPE: Final = MappingProxyType(
    {1: CommandCode.UPDATE_TOPIC, 2: CommandCode.UPDATE_STREAM, 3: CommandCode.UPDATE_USER}
)
"""What ``UPDATE_RESOURCE`` updates, by the first byte of its body."""

_OPERATIONS_0_11 = {**SESSION_OPERATIONS, **METADATA_OPERATIONS, **PARTITION_OPERATIONS}
_OPERATIONS_0_12 = {
    operation: code
    for operation, code in _OPERATIONS_0_11.items()
    if operation not in RETIRED_OPERATIONS
}
OPERATIONS: Final[ByDialect[Mapping[int, CommandCode]]] = ByDialect(
    MappingProxyType({}),
    {V0_11: MappingProxyType(_OPERATIONS_0_11), V0_12_0: MappingProxyType(_OPERATIONS_0_12)},
)
"""The command of each operation; ``UPDATE_RESOURCE`` is left out, because it has several."""

_BY_CODE: ByDialect[Mapping[int, int]] = ByDialect(
    {},
    {
        V0_11: {code: operation for operation, code in _OPERATIONS_0_11.items()},
        V0_12_0: {
            **{code: operation for operation, code in _OPERATIONS_0_12.items()},
            **dict.fromkeys(UPDATED_BY_SCOPE.values(), UPDATE_RESOURCE),
        },
    },
)
KNOWN_OPERATIONS: Final = frozenset({*_OPERATIONS_0_11, NON_REPLICATED, UPDATE_RESOURCE})
REPLICATED_CODES: Final[ByDialect[frozenset[int]]] = ByDialect(
    frozenset(),
    {
        V0_11: frozenset(_OPERATIONS_0_11.values()),
        V0_12_0: frozenset({*_OPERATIONS_0_12.values(), UPDATE_RESOURCE_CODE}),
    },
)
"""The codes that stand for an operation, and so never in a head."""
ALL_REPLICATED_CODES: Final = REPLICATED_CODES[V0_11] | REPLICATED_CODES[V0_12_0]
"""Those of any dialect: a retired one is not taken as a code either."""

# What a server commits in place of what the client asked for.
COMMITTED_OPERATIONS: Final[Mapping[int, int]] = MappingProxyType(
    {
        CommandCode.CREATE_TOPIC: 64,
        CommandCode.CREATE_PARTITIONS: 65,
        CommandCode.DELETE_SEGMENTS: 68,
    }
)
UPDATED_OPERATIONS: Final[Mapping[int, int]] = MappingProxyType(
    {CommandCode.UPDATE_STREAM: 72, CommandCode.UPDATE_TOPIC: 73, CommandCode.UPDATE_USER: 74}
)
_REQUESTED = MappingProxyType({64: 132, 65: 136, 68: DELETE_SEGMENTS, 72: 150, 73: 150, 74: 150})

RESULT_FRAMED: Final = frozenset({*range(64, 151), 161, 162} - {DELETE_SEGMENTS})
"""The operations of replies whose body begins with a result section; a Register's does as well."""

_COUNT = struct.Struct("<I")
_ENTRY = struct.Struct("<II")
NO_ERRORS: Final = _COUNT.pack(0)
"""The result section of a success."""


def operation_of(code: int, dialect: Dialect) -> int:
    """Return the operation that a command travels as."""
    return _BY_CODE[dialect].get(code, NON_REPLICATED)


def is_stamped(operation: int) -> bool:
    """Return whether requests of this operation have an identifier."""
    return operation in SESSION_OPERATIONS or 128 <= operation <= UPDATE_RESOURCE


def is_metadata(operation: int) -> bool:
    """Return whether a reply of this operation tells the position of the metadata."""
    return operation != NON_REPLICATED and operation not in PARTITION_OPERATIONS


def updated_by(body: Buffer) -> CommandCode:
    """Return the command that an ``UPDATE_RESOURCE`` is.

    Raises:
        RemoteProtocolError: its body does not begin with a scope.
    """
    if not len(body):
        raise TruncatedField("an update begins with its scope", field="scope", need=1)
    code = UPDATED_BY_SCOPE.get(body[0])
    if code is None:
        raise UnknownDiscriminant(f"{body[0]} is no scope of an update", field="scope")
    return code


def committed_operation(code: int, operation: int) -> int:
    """Return the operation of the reply to a committed request."""
    if operation == NON_REPLICATED:
        return operation
    committed = UPDATED_OPERATIONS if operation == UPDATE_RESOURCE else COMMITTED_OPERATIONS
    return committed.get(code, operation)


def requested_operation(operation: int) -> int:
    """Return the operation of the request that a reply with this operation answers."""
    return _REQUESTED.get(operation, operation)


def result_section(status: int) -> bytes:
    """Write the result section of a request that failed."""
    return _COUNT.pack(1) + _ENTRY.pack(0, status)


def read_result(operation: int, body: Buffer) -> tuple[int, int]:
    """Return the status in a reply's body, and where its payload begins.

    Raises:
        RemoteProtocolError: the section is shorter than it says, or breaks its rules.
    """
    if operation not in RESULT_FRAMED and not (operation == REGISTER and len(body)):
        return 0, 0
    if len(body) < _COUNT.size:
        raise TruncatedField("the result section ends in its count", field="count", have=len(body))
    (count,) = _COUNT.unpack_from(body)
    if not count:
        return 0, _COUNT.size
    size = _COUNT.size + count * _ENTRY.size
    if len(body) != size:
        message = f"{count} results have {size} bytes, not {len(body)}"
        raise InvalidField(message, field="count", need=size, have=len(body))
    _, status = _ENTRY.unpack_from(body, _COUNT.size)
    if not status:
        raise InvalidField("a result is an error, but its code is 0", field="code")
    return status, size
