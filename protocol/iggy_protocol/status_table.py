"""The statuses a server answers or a client reports, as literal tables.

Apache Iggy 0.8 has 223 of them; 0.9 and 0.10 added the others. Each has a number, a name, a
meaning, a group and whether a retry can help. Import from ``codes``.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum, unique
from types import MappingProxyType
from typing import TYPE_CHECKING

from iggy_protocol.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@unique
class StatusGroup(Enum):
    """What kind of trouble a status tells of, one group per branch of a client's error tree."""

    CONNECTION = "the transport failed or the peer went away"
    CLIENT_CLOSED = "the client was closed by its owner"
    TIMEOUT = "nothing came in time"
    PROTOCOL = "the answer could not be understood"
    AUTHENTICATION = "who you are is missing, wrong or expired"
    PERMISSION = "you are known, but this is not allowed"
    NOT_FOUND = "the named thing is absent"
    ALREADY_EXISTS = "the name is taken"
    LIMIT = "there is no room for one more"
    INVALID_REQUEST = "the request breaks a rule and will break it again"
    CONSUMER_GROUP = "membership or assignment does not allow it"
    PRODUCER = "a client's background sending failed"
    ENCRYPTION = "a payload could not be sealed or opened"
    CONFIGURATION = "a setting of the client or the server is unusable"
    CORRUPTION = "stored bytes are damaged, and reading them again finds the same damage"
    STORAGE = "a file operation of the server failed"
    SERVER = "the server failed in another way"


@record
class Status:
    """One row of the table.

    Attributes:
        code: the number on the wire.
        name: the upstream name, as in ``StreamIdNotFound``.
        meaning: one line for people.
        group: the branch of the error tree.
        retriable: whether the same request may succeed when it is simply sent again.
    """

    code: int
    name: str
    meaning: str
    group: StatusGroup
    retriable: bool

    @property
    def snake_name(self) -> str:
        """The name as the HTTP error body spells it, as in ``stream_id_not_found``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


@unique
class StatusCode(IntEnum):
    """The first word of a response: zero for success, else the reason for the refusal."""

    OK = 0
    ERROR = 1
    INVALID_CONFIGURATION = 2
    INVALID_COMMAND = 3
    INVALID_FORMAT = 4
    FEATURE_UNAVAILABLE = 5
    INVALID_IDENTIFIER = 6
    INVALID_VERSION = 7
    DISCONNECTED = 8
    CANNOT_ESTABLISH_CONNECTION = 9
    CANNOT_CREATE_BASE_DIRECTORY = 10
    CANNOT_CREATE_RUNTIME_DIRECTORY = 11
    CANNOT_REMOVE_RUNTIME_DIRECTORY = 12
    CANNOT_CREATE_STATE_DIRECTORY = 13
    STATE_FILE_NOT_FOUND = 14
    STATE_FILE_CORRUPTED = 15
    INVALID_STATE_ENTRY_CHECKSUM = 16
    CANNOT_OPEN_DATABASE = 19
    RESOURCE_NOT_FOUND = 20
    CANNOT_CLOSE_WEB_SOCKET_CONNECTION = 21
    STALE_CLIENT = 30
    TCP_ERROR = 31
    QUIC_ERROR = 32
    INVALID_SERVER_ADDRESS = 33
    INVALID_CLIENT_ADDRESS = 34
    INVALID_IP_ADDRESS = 35
    HTTP_ERROR = 36
    INVALID_API_URL = 37
    UNAUTHENTICATED = 40
    UNAUTHORIZED = 41
    INVALID_CREDENTIALS = 42
    INVALID_USERNAME = 43
    INVALID_PASSWORD = 44
    INVALID_USER_STATUS = 45
    USER_ALREADY_EXISTS = 46
    USER_INACTIVE = 47
    CANNOT_DELETE_USER = 48
    CANNOT_CHANGE_PERMISSIONS = 49
    INVALID_PERSONAL_ACCESS_TOKEN_NAME = 50
    PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS = 51
    PERSONAL_ACCESS_TOKENS_LIMIT_REACHED = 52
    INVALID_PERSONAL_ACCESS_TOKEN = 53
    PERSONAL_ACCESS_TOKEN_EXPIRED = 54
    USERS_LIMIT_REACHED = 55
    INVALID_TOKEN_EXPIRY = 56
    TRANSIENT_NOT_COMMITTED = 57
    TRANSIENT_NOT_ACCEPTED = 58
    REQUEST_ALREADY_APPLIED = 59
    NOT_CONNECTED = 61
    CLIENT_SHUTDOWN = 63
    INVALID_TLS_DOMAIN = 64
    INVALID_TLS_CERTIFICATE_PATH = 65
    INVALID_TLS_CERTIFICATE = 66
    FAILED_TO_ADD_CERTIFICATE = 67
    INVALID_ENCRYPTION_KEY = 70
    CANNOT_ENCRYPT_DATA = 71
    CANNOT_DECRYPT_DATA = 72
    INVALID_JWT_ALGORITHM = 73
    INVALID_JWT_SECRET = 74
    JWT_MISSING = 75
    CANNOT_GENERATE_JWT = 76
    ACCESS_TOKEN_MISSING = 77
    INVALID_ACCESS_TOKEN = 78
    CANNOT_FETCH_JWKS = 79
    INVALID_SIZE_BYTES = 80
    INVALID_UTF8 = 81
    INVALID_NUMBER_ENCODING = 82
    INVALID_BOOLEAN_VALUE = 83
    INVALID_NUMBER_VALUE = 84
    REQUEST_TOO_OLD = 85
    PARTITION_HISTORY_UNAVAILABLE = 87
    LIFECYCLE_OPERATION_PENDING = 88
    NOT_PRIMARY = 89
    TOO_MANY_DEFERRED_POLLS = 90
    PRODUCER_IDS_EXHAUSTED = 91
    PRODUCER_SEQUENCE_OUT_OF_ORDER = 92
    PRODUCER_EPOCH_FENCED = 93
    PRODUCER_UNKNOWN = 94
    PRODUCER_PARTITION_REQUIRED = 95
    CLIENT_NOT_FOUND = 100
    INVALID_CLIENT_ID = 101
    CONNECTION_CLOSED = 206
    CANNOT_PARSE_HEADER_KIND = 209
    HTTP_RESPONSE_ERROR = 300
    INVALID_HTTP_REQUEST = 301
    INVALID_JSON_RESPONSE = 302
    INVALID_BYTES_RESPONSE = 303
    EMPTY_RESPONSE = 304
    CANNOT_CREATE_ENDPOINT = 305
    CANNOT_PARSE_URL = 306
    WEB_SOCKET_ERROR = 400
    WEB_SOCKET_CONNECTION_ERROR = 401
    WEB_SOCKET_CLOSE_ERROR = 402
    WEB_SOCKET_RECEIVE_ERROR = 403
    WEB_SOCKET_SEND_ERROR = 404
    CANNOT_CREATE_STREAMS_DIRECTORY = 1000
    CANNOT_CREATE_STREAM_DIRECTORY = 1001
    CANNOT_CREATE_STREAM_INFO = 1002
    CANNOT_UPDATE_STREAM_INFO = 1003
    CANNOT_OPEN_STREAM_INFO = 1004
    CANNOT_READ_STREAM_INFO = 1005
    CANNOT_CREATE_STREAM = 1006
    CANNOT_DELETE_STREAM = 1007
    CANNOT_DELETE_STREAM_DIRECTORY = 1008
    STREAM_ID_NOT_FOUND = 1009
    STREAM_NAME_NOT_FOUND = 1010
    STREAM_DIRECTORY_NOT_FOUND = 1011
    STREAM_NAME_ALREADY_EXISTS = 1012
    INVALID_STREAM_NAME = 1013
    INVALID_STREAM_ID = 1014
    CANNOT_READ_STREAMS = 1015
    INVALID_TOPIC_SIZE = 1019
    TOO_MANY_STREAMS = 1020
    CANNOT_CREATE_TOPICS_DIRECTORY = 2000
    CANNOT_CREATE_TOPIC_DIRECTORY = 2001
    CANNOT_CREATE_TOPIC_INFO = 2002
    CANNOT_UPDATE_TOPIC_INFO = 2003
    CANNOT_OPEN_TOPIC_INFO = 2004
    CANNOT_READ_TOPIC_INFO = 2005
    CANNOT_CREATE_TOPIC = 2006
    CANNOT_DELETE_TOPIC = 2007
    CANNOT_DELETE_TOPIC_DIRECTORY = 2008
    CANNOT_POLL_TOPIC = 2009
    TOPIC_ID_NOT_FOUND = 2010
    TOPIC_NAME_NOT_FOUND = 2011
    TOPIC_NAME_ALREADY_EXISTS = 2013
    INVALID_TOPIC_NAME = 2014
    TOO_MANY_PARTITIONS = 2015
    INVALID_TOPIC_ID = 2016
    CANNOT_READ_TOPICS = 2017
    INVALID_REPLICATION_FACTOR = 2018
    INVALID_PARTITIONS_COUNT = 2019
    TOPIC_DIRECTORY_NOT_FOUND = 2020
    TOO_MANY_TOPICS = 2021
    PARTITIONS_LIMIT_REACHED = 2022
    PARTITION_RESIZE_DISABLED = 2023
    CANNOT_CREATE_PARTITION = 3000
    CANNOT_CREATE_PARTITIONS_DIRECTORY = 3001
    CANNOT_CREATE_PARTITION_DIRECTORY = 3002
    CANNOT_OPEN_PARTITION_LOG_FILE = 3003
    CANNOT_READ_PARTITIONS = 3004
    CANNOT_DELETE_PARTITION = 3005
    CANNOT_DELETE_PARTITION_DIRECTORY = 3006
    PARTITION_NOT_FOUND = 3007
    NO_PARTITIONS = 3008
    TOPIC_FULL = 3009
    CANNOT_DELETE_CONSUMER_OFFSETS_DIRECTORY = 3010
    CANNOT_DELETE_CONSUMER_OFFSET_FILE = 3011
    CANNOT_CREATE_CONSUMER_OFFSETS_DIRECTORY = 3012
    PARTITION_IDS_EXHAUSTED = 3013
    PARTITION_HISTORY_CHANGED = 3014
    CANNOT_READ_CONSUMER_OFFSETS = 3020
    CONSUMER_OFFSET_NOT_FOUND = 3021
    NOT_RESOLVED_CONSUMER = 3022
    CANNOT_OPEN_CONSUMER_OFFSETS_FILE = 3023
    TOO_MANY_CONSUMER_OFFSETS = 3024
    SEGMENT_NOT_FOUND = 4000
    SEGMENT_CLOSED = 4001
    INVALID_SEGMENT_SIZE = 4002
    CANNOT_CREATE_SEGMENT_LOG_FILE = 4003
    CANNOT_CREATE_SEGMENT_INDEX_FILE = 4004
    CANNOT_CREATE_SEGMENT_TIME_INDEX_FILE = 4005
    CANNOT_SAVE_MESSAGES_TO_SEGMENT = 4006
    CANNOT_SAVE_INDEX_TO_SEGMENT = 4007
    CANNOT_SAVE_TIME_INDEX_TO_SEGMENT = 4008
    INVALID_MESSAGES_COUNT = 4009
    CANNOT_APPEND_MESSAGE = 4010
    CANNOT_READ_MESSAGE = 4011
    CANNOT_READ_MESSAGE_ID = 4012
    CANNOT_READ_MESSAGE_STATE = 4013
    CANNOT_READ_MESSAGE_TIMESTAMP = 4014
    CANNOT_READ_HEADERS_LENGTH = 4015
    CANNOT_READ_HEADERS_PAYLOAD = 4016
    TOO_BIG_USER_HEADERS = 4017
    INVALID_HEADER_KEY = 4018
    INVALID_HEADER_VALUE = 4019
    CANNOT_READ_MESSAGE_LENGTH = 4020
    CANNOT_READ_MESSAGE_PAYLOAD = 4021
    TOO_BIG_MESSAGE_PAYLOAD = 4022
    TOO_MANY_MESSAGES = 4023
    EMPTY_MESSAGE_PAYLOAD = 4024
    INVALID_MESSAGE_PAYLOAD_LENGTH = 4025
    CANNOT_READ_MESSAGE_CHECKSUM = 4026
    INVALID_MESSAGE_CHECKSUM = 4027
    INVALID_KEY_VALUE_LENGTH = 4028
    COMMAND_LENGTH_ERROR = 4029
    INVALID_SEGMENTS_COUNT = 4030
    NON_ZERO_OFFSET = 4031
    NON_ZERO_TIMESTAMP = 4032
    MISSING_INDEX = 4033
    INVALID_INDEXES_BYTE_SIZE = 4034
    INVALID_INDEXES_COUNT = 4035
    INVALID_MESSAGES_SIZE = 4036
    TOO_SMALL_MESSAGE = 4037
    INVALID_MESSAGE_TIMESTAMP_DELTA = 4038
    INVALID_BATCH_CHECKSUM = 4039
    INVALID_HEADER_KIND = 4040
    UNSUPPORTED_OPTION_KEY = 4041
    INVALID_OPTION_VALUE = 4042
    OPTIONS_TOO_LARGE = 4043
    CANNOT_SEND_MESSAGES_DUE_TO_CLIENT_DISCONNECTION = 4050
    BACKGROUND_SEND_ERROR = 4051
    BACKGROUND_SEND_TIMEOUT = 4052
    BACKGROUND_SEND_BUFFER_FULL = 4053
    BACKGROUND_WORKER_DISCONNECTED = 4054
    BACKGROUND_SEND_BUFFER_OVERFLOW = 4055
    PRODUCER_SEND_FAILED = 4056
    PRODUCER_CLOSED = 4057
    INVALID_OFFSET = 4100
    INVALID_RESERVED_FIELD = 4101
    SEGMENT_SIZE_MISMATCH = 4102
    OPTION_NOT_UPDATABLE = 4103
    OPTION_NOT_RESETTABLE = 4104
    OPTION_READ_ONLY = 4105
    STREAM_ENCRYPTION_UNAVAILABLE = 4106
    UNSUPPORTED_CRITICAL_OPTION = 4107
    ROOT_USER_IMMUTABLE = 4108
    CONSUMER_GROUP_ID_NOT_FOUND = 5000
    INVALID_CONSUMER_GROUP_ID = 5002
    CONSUMER_GROUP_NAME_NOT_FOUND = 5003
    CONSUMER_GROUP_NAME_ALREADY_EXISTS = 5004
    INVALID_CONSUMER_GROUP_NAME = 5005
    CONSUMER_GROUP_MEMBER_NOT_FOUND = 5006
    CANNOT_CREATE_CONSUMER_GROUP_INFO = 5007
    CANNOT_DELETE_CONSUMER_GROUP_INFO = 5008
    CONSUMER_GROUP_PARTITION_NOT_OWNED = 5009
    TOO_MANY_CONSUMER_GROUPS = 5010
    MISSING_BASE_OFFSET_RETAINED_MESSAGE_BATCH = 6000
    MISSING_LAST_OFFSET_DELTA_RETAINED_MESSAGE_BATCH = 6001
    MISSING_MAX_TIMESTAMP_RETAINED_MESSAGE_BATCH = 6002
    MISSING_LENGTH_RETAINED_MESSAGE_BATCH = 6003
    MISSING_PAYLOAD_RETAINED_MESSAGE_BATCH = 6004
    CANNOT_READ_BATCH_BASE_OFFSET = 7000
    CANNOT_READ_BATCH_LENGTH = 7001
    CANNOT_READ_LAST_OFFSET_DELTA = 7002
    CANNOT_READ_MAX_TIMESTAMP = 7003
    CANNOT_READ_BATCH_PAYLOAD = 7004
    INVALID_CONNECTION_STRING = 8000
    SNAPSHOT_FILE_COMPLETION_FAILED = 9000
    CANNOT_SERIALIZE_RESOURCE = 10000
    CANNOT_DESERIALIZE_RESOURCE = 10001
    CANNOT_READ_FILE = 10002
    CANNOT_READ_FILE_METADATA = 10003
    CANNOT_SEEK_FILE = 10004
    CANNOT_APPEND_TO_FILE = 10005
    CANNOT_WRITE_TO_FILE = 10006
    CANNOT_OVERWRITE_FILE = 10007
    CANNOT_DELETE_FILE = 10008
    CANNOT_SYNC_FILE = 10009
    CANNOT_READ_INDEX_OFFSET = 10010
    CANNOT_READ_INDEX_POSITION = 10011
    CANNOT_READ_INDEX_TIMESTAMP = 10012
    TIMESTAMP_OUT_OF_RANGE = 10013
    SHARD_NOT_FOUND = 11000
    SHARD_COMMUNICATION_ERROR = 11001
    CANNOT_BIND_TO_SOCKET = 12000
    TASK_TIMEOUT = 12001
    IO_ERROR = 13000
    ALREADY_AUTHENTICATED = 14000
    INVALID_SESSION = 14001
    INCOMPATIBLE_PROTOCOL_VERSION = 14003
    SESSION_MISMATCH = 14004
    REQUEST_IDS_EXHAUSTED = 14005
    OPERATION_UNCERTAIN = 14006
    LANE_BLOCKED = 14007
    OPERATION_NOT_RETAINED = 14008
    PARTITION_LANE_BLOCKED = 14009
    FETCH_PROGRESS_UNCERTAIN = 14010


def _section(
    group: StatusGroup, *, retriable: bool, rows: Iterable[tuple[StatusCode, str]]
) -> tuple[Status, ...]:
    """Make the records of one group; the upstream name is the member's name in camel case."""
    return tuple(
        Status(
            code=int(code),
            name="".join(word.capitalize() for word in code.name.split("_")),
            meaning=meaning,
            group=group,
            retriable=retriable,
        )
        for code, meaning in rows
    )


def index_statuses(records: Iterable[Status]) -> Mapping[int, Status]:
    """Index the records by code, and refuse a code or a name that comes twice or never."""
    by_code: dict[int, Status] = {}
    names: set[str] = set()
    for one in records:
        if one.code in by_code or one.name in names:
            raise ValueError(f"status {one.code} {one.name} is in the table twice")
        by_code[one.code] = one
        names.add(one.name)
    missing = {int(code) for code in StatusCode} - {0} - by_code.keys()
    if missing:
        raise ValueError(f"statuses {sorted(missing)} are not in the table")
    return MappingProxyType(dict(sorted(by_code.items())))


# Retriable are transport errors, timeouts and file errors of the server. A section that departs
# from this says why above itself.
_RECORDS: tuple[Status, ...] = (
    *_section(
        StatusGroup.CONNECTION,
        retriable=True,
        rows=(
            (
                StatusCode.DISCONNECTED,
                "Peer is going away; a stopping server also pushes this unasked",
            ),
            (StatusCode.CANNOT_ESTABLISH_CONNECTION, "Client could not open a connection"),
            (
                StatusCode.STALE_CLIENT,
                "Server no longer tracks this connection; it closes after the reply",
            ),
            (StatusCode.TCP_ERROR, "Socket level failure on TCP"),
            (
                StatusCode.QUIC_ERROR,
                "QUIC stream or connection failed; also a SendMessages body cut short",
            ),
            (StatusCode.NOT_CONNECTED, "Client is not connected"),
            (StatusCode.CONNECTION_CLOSED, "Peer closed the connection"),
            (StatusCode.INVALID_HTTP_REQUEST, "HTTP request could not be sent"),
            (StatusCode.CANNOT_CREATE_ENDPOINT, "QUIC endpoint could not be made"),
            (StatusCode.WEB_SOCKET_ERROR, "WebSocket failure"),
            (StatusCode.WEB_SOCKET_CONNECTION_ERROR, "WebSocket connect failure"),
            (StatusCode.WEB_SOCKET_RECEIVE_ERROR, "WebSocket receive failure"),
            (StatusCode.WEB_SOCKET_SEND_ERROR, "WebSocket send failure"),
        ),
    ),
    # The connection is gone either way, and closing it again changes nothing.
    *_section(
        StatusGroup.CONNECTION,
        retriable=False,
        rows=(
            (StatusCode.CANNOT_CLOSE_WEB_SOCKET_CONNECTION, "WebSocket close handshake failed"),
            (StatusCode.WEB_SOCKET_CLOSE_ERROR, "WebSocket close failure"),
        ),
    ),
    *_section(
        StatusGroup.CLIENT_CLOSED,
        retriable=False,
        rows=((StatusCode.CLIENT_SHUTDOWN, "Client was shut down"),),
    ),
    *_section(
        StatusGroup.TIMEOUT,
        retriable=True,
        rows=(
            (StatusCode.TASK_TIMEOUT, "Internal task took too long (partition start-up above 5 s)"),
        ),
    ),
    *_section(
        StatusGroup.PROTOCOL,
        retriable=False,
        rows=(
            (StatusCode.JWT_MISSING, "Login answer carried no JWT"),
            (StatusCode.HTTP_RESPONSE_ERROR, "HTTP answer was not a success"),
            (StatusCode.INVALID_JSON_RESPONSE, "JSON answer not parseable"),
            (StatusCode.INVALID_BYTES_RESPONSE, "Binary answer not readable"),
            (
                StatusCode.INCOMPATIBLE_PROTOCOL_VERSION,
                "Server does not speak the version of this client",
            ),
        ),
    ),
    # The connection ended before the answer did, which makes this a transport error.
    *_section(
        StatusGroup.PROTOCOL,
        retriable=True,
        rows=((StatusCode.EMPTY_RESPONSE, "Answer was empty or short"),),
    ),
    *_section(
        StatusGroup.AUTHENTICATION,
        retriable=False,
        rows=(
            (StatusCode.UNAUTHENTICATED, "No login on this session"),
            (StatusCode.INVALID_CREDENTIALS, "Unknown user name or wrong password"),
            (StatusCode.USER_INACTIVE, "User exists but is disabled"),
            (StatusCode.INVALID_PERSONAL_ACCESS_TOKEN, "Access token malformed"),
            (StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED, "Access token past its expiry"),
            (StatusCode.ACCESS_TOKEN_MISSING, "HTTP client holds no access token"),
            (StatusCode.INVALID_ACCESS_TOKEN, "JWT invalid, already refreshed or revoked"),
            (StatusCode.CANNOT_FETCH_JWKS, "Key set of a trusted JWT issuer could not be fetched"),
            (StatusCode.ALREADY_AUTHENTICATED, "Session has a login already"),
            (StatusCode.INVALID_SESSION, "Session unknown or ended"),
            (StatusCode.SESSION_MISMATCH, "Reply belongs to another session"),
        ),
    ),
    *_section(
        StatusGroup.PERMISSION,
        retriable=False,
        rows=(
            (StatusCode.UNAUTHORIZED, "Logged in but lacking the permission"),
            (StatusCode.CANNOT_DELETE_USER, "User may not be removed (root)"),
            (
                StatusCode.CANNOT_CHANGE_PERMISSIONS,
                "Permissions of this user may not change (root)",
            ),
            (StatusCode.ROOT_USER_IMMUTABLE, "Root user may not be changed"),
        ),
    ),
    *_section(
        StatusGroup.NOT_FOUND,
        retriable=False,
        rows=(
            (
                StatusCode.RESOURCE_NOT_FOUND,
                "Named thing is absent (used for users and access tokens)",
            ),
            (
                StatusCode.CLIENT_NOT_FOUND,
                "Client id unknown; the connection closes after the reply",
            ),
            (StatusCode.STREAM_ID_NOT_FOUND, "Stream identifier does not resolve"),
            (StatusCode.STREAM_NAME_NOT_FOUND, "Stream name does not resolve"),
            (
                StatusCode.TOPIC_ID_NOT_FOUND,
                "Topic identifier does not resolve, or it has no partitions to balance over",
            ),
            (StatusCode.TOPIC_NAME_NOT_FOUND, "Topic name does not resolve"),
            (StatusCode.PARTITION_NOT_FOUND, "Partition id does not exist in the topic"),
            (StatusCode.NO_PARTITIONS, "Topic has zero partitions (never answered by 0.8.0)"),
            (StatusCode.CONSUMER_OFFSET_NOT_FOUND, "No stored offset to remove for this consumer"),
            (StatusCode.SEGMENT_NOT_FOUND, "Segment missing"),
            (StatusCode.CONSUMER_GROUP_ID_NOT_FOUND, "Consumer group identifier does not resolve"),
            (StatusCode.CONSUMER_GROUP_NAME_NOT_FOUND, "Consumer group name does not resolve"),
            (
                StatusCode.PARTITION_HISTORY_UNAVAILABLE,
                "Partition has started over since the request was prepared",
            ),
            (StatusCode.OPERATION_NOT_RETAINED, "Uncertain request is not kept any more"),
        ),
    ),
    *_section(
        StatusGroup.ALREADY_EXISTS,
        retriable=False,
        rows=(
            (StatusCode.USER_ALREADY_EXISTS, "User name taken"),
            (
                StatusCode.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS,
                "Access token name taken for this user",
            ),
            (StatusCode.STREAM_NAME_ALREADY_EXISTS, "Stream name taken"),
            (StatusCode.TOPIC_NAME_ALREADY_EXISTS, "Topic name taken in this stream"),
            (
                StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS,
                "Consumer group name taken in this topic",
            ),
        ),
    ),
    *_section(
        StatusGroup.LIMIT,
        retriable=False,
        rows=(
            (
                StatusCode.PERSONAL_ACCESS_TOKENS_LIMIT_REACHED,
                "User holds the maximum number of access tokens",
            ),
            (StatusCode.USERS_LIMIT_REACHED, "User table full"),
            (StatusCode.TOPIC_FULL, "Topic reached its size cap (never answered by 0.8.0)"),
            (StatusCode.PRODUCER_IDS_EXHAUSTED, "Session has used all its producer ids"),
            (StatusCode.TOO_MANY_STREAMS, "Server holds the maximum number of streams"),
            (StatusCode.TOO_MANY_TOPICS, "Stream holds the maximum number of topics"),
            (StatusCode.PARTITIONS_LIMIT_REACHED, "Server holds the maximum number of partitions"),
            (StatusCode.PARTITION_IDS_EXHAUSTED, "Topic has used all its partition ids"),
            (
                StatusCode.TOO_MANY_CONSUMER_OFFSETS,
                "Partition holds the maximum number of stored offsets",
            ),
            (
                StatusCode.TOO_MANY_CONSUMER_GROUPS,
                "Topic holds the maximum number of consumer groups",
            ),
            (StatusCode.REQUEST_IDS_EXHAUSTED, "Session has used all its request numbers"),
        ),
    ),
    *_section(
        StatusGroup.INVALID_REQUEST,
        retriable=False,
        rows=(
            (
                StatusCode.INVALID_COMMAND,
                "Request could not be parsed or the command code is unknown",
            ),
            (
                StatusCode.INVALID_FORMAT,
                "A field broke a structural rule (for example an empty or oversized name)",
            ),
            (StatusCode.FEATURE_UNAVAILABLE, "Operation not offered by this build or transport"),
            (
                StatusCode.INVALID_IDENTIFIER,
                "Identifier bytes are not a legal numeric or string id",
            ),
            (StatusCode.INVALID_VERSION, "Version string not parseable"),
            (StatusCode.INVALID_USERNAME, "User name length outside 3 to 50 bytes"),
            (StatusCode.INVALID_PASSWORD, "Password length outside 3 to 100 bytes"),
            (StatusCode.INVALID_USER_STATUS, "User status text not recognised"),
            (
                StatusCode.INVALID_PERSONAL_ACCESS_TOKEN_NAME,
                "Access token name length outside 3 to 30 bytes",
            ),
            (StatusCode.INVALID_SIZE_BYTES, "Byte size text or declared size not acceptable"),
            (StatusCode.INVALID_UTF8, "Bytes are not UTF-8"),
            (StatusCode.INVALID_NUMBER_ENCODING, "Bytes cannot be read as the expected integer"),
            (StatusCode.INVALID_BOOLEAN_VALUE, "Boolean text or byte not acceptable"),
            (StatusCode.INVALID_NUMBER_VALUE, "Numeric text not acceptable"),
            (StatusCode.INVALID_CLIENT_ID, "Client id zero supplied"),
            (StatusCode.CANNOT_PARSE_HEADER_KIND, "Header kind text not recognised"),
            (
                StatusCode.INVALID_STREAM_NAME,
                "Stream name length outside 1 to 255 bytes (HTTP path)",
            ),
            (StatusCode.INVALID_STREAM_ID, "Stream id unusable"),
            (StatusCode.INVALID_TOPIC_SIZE, "Requested topic size cap is below the segment size"),
            (StatusCode.INVALID_TOPIC_NAME, "Topic name length outside 1 to 255 bytes (HTTP path)"),
            (StatusCode.TOO_MANY_PARTITIONS, "Partition count outside the allowed range"),
            (StatusCode.INVALID_TOPIC_ID, "Topic id unusable"),
            (
                StatusCode.INVALID_REPLICATION_FACTOR,
                "Replication factor zero supplied explicitly (HTTP path)",
            ),
            (StatusCode.INVALID_PARTITIONS_COUNT, "Asked to remove more partitions than exist"),
            (
                StatusCode.INVALID_MESSAGES_COUNT,
                "Batch is empty or its message count is inconsistent",
            ),
            (StatusCode.TOO_BIG_USER_HEADERS, "User headers above 100000 bytes"),
            (StatusCode.INVALID_HEADER_KEY, "User header key malformed"),
            (StatusCode.INVALID_HEADER_VALUE, "User header value malformed"),
            (StatusCode.TOO_BIG_MESSAGE_PAYLOAD, "Message payload above 64000000 bytes"),
            (StatusCode.TOO_MANY_MESSAGES, "Too many messages"),
            (StatusCode.EMPTY_MESSAGE_PAYLOAD, "Payload empty"),
            (
                StatusCode.INVALID_MESSAGE_PAYLOAD_LENGTH,
                "Payload length field inconsistent, or empty payload rejected by an SDK",
            ),
            (
                StatusCode.INVALID_KEY_VALUE_LENGTH,
                "Partitioning value missing or above 255 bytes (HTTP path)",
            ),
            (StatusCode.COMMAND_LENGTH_ERROR, "Command length inconsistent"),
            (StatusCode.INVALID_SEGMENTS_COUNT, "Segment count unusable"),
            (StatusCode.NON_ZERO_OFFSET, "Index entry carries a non-zero offset"),
            (StatusCode.NON_ZERO_TIMESTAMP, "Index entry carries a non-zero timestamp"),
            (StatusCode.MISSING_INDEX, "Index entry absent or not delimiting one whole message"),
            (StatusCode.INVALID_INDEXES_BYTE_SIZE, "Index table size not a multiple of 16"),
            (StatusCode.INVALID_INDEXES_COUNT, "Index table count inconsistent"),
            (
                StatusCode.INVALID_MESSAGES_SIZE,
                "Sum of message sizes differs from the byte count received",
            ),
            (
                StatusCode.TOO_SMALL_MESSAGE,
                "Message shorter than its fixed header (0.8.0 answers 4033 instead)",
            ),
            (
                StatusCode.INVALID_MESSAGE_TIMESTAMP_DELTA,
                "Message timestamps inside a batch spread too far (newer batch format)",
            ),
            (StatusCode.INVALID_BATCH_CHECKSUM, "Batch checksum mismatch (newer batch format)"),
            (StatusCode.INVALID_HEADER_KIND, "User header kind code unknown"),
            (
                StatusCode.INVALID_OFFSET,
                "Offset not acceptable (for example storing beyond the partition end)",
            ),
            (StatusCode.INVALID_RESERVED_FIELD, "Reserved header field is not zero"),
            (StatusCode.INVALID_CONSUMER_GROUP_ID, "Consumer group id unusable"),
            (
                StatusCode.INVALID_CONSUMER_GROUP_NAME,
                "Consumer group name length outside 1 to 255 bytes (HTTP path)",
            ),
            (
                StatusCode.CANNOT_READ_INDEX_POSITION,
                "Index position unreadable (0.8.0 answers 4033 instead)",
            ),
            (StatusCode.TIMESTAMP_OUT_OF_RANGE, "Timestamp outside the representable range"),
            (
                StatusCode.INVALID_TOKEN_EXPIRY,
                "Expiry of an access token outside the allowed range",
            ),
            (
                StatusCode.REQUEST_ALREADY_APPLIED,
                "Request was carried out before; its reply is not kept any more",
            ),
            (StatusCode.REQUEST_TOO_OLD, "Request number is too old for its outcome to be known"),
            (
                StatusCode.PRODUCER_PARTITION_REQUIRED,
                "Batch of an idempotent producer must name its partition",
            ),
            (StatusCode.PARTITION_RESIZE_DISABLED, "Topic has a fixed number of partitions"),
            (StatusCode.UNSUPPORTED_OPTION_KEY, "Option unknown for this resource"),
            (
                StatusCode.INVALID_OPTION_VALUE,
                "Option value of the wrong kind or outside its range",
            ),
            (StatusCode.OPTIONS_TOO_LARGE, "Options have too many entries or bytes"),
            (StatusCode.SEGMENT_SIZE_MISMATCH, "Segment size differs from that of the topic"),
            (StatusCode.OPTION_NOT_UPDATABLE, "Option is set on creation only"),
            (StatusCode.OPTION_NOT_RESETTABLE, "Option has no default to go back to"),
            (StatusCode.OPTION_READ_ONLY, "Option is reported by the server only"),
            (StatusCode.STREAM_ENCRYPTION_UNAVAILABLE, "Server does not encrypt single streams"),
            (
                StatusCode.UNSUPPORTED_CRITICAL_OPTION,
                "Critical option that the server does not support",
            ),
            (StatusCode.LANE_BLOCKED, "An uncertain change of metadata must be resolved first"),
            (
                StatusCode.PARTITION_LANE_BLOCKED,
                "An uncertain write to the partition must be resolved first",
            ),
        ),
    ),
    *_section(
        StatusGroup.CONSUMER_GROUP,
        retriable=False,
        rows=(
            (StatusCode.NOT_RESOLVED_CONSUMER, "Consumer has no partition to act on"),
            (
                StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND,
                "This connection is not a member of the group",
            ),
            (
                StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED,
                "Another member owns the partition; sync the group first",
            ),
        ),
    ),
    *_section(
        StatusGroup.PRODUCER,
        retriable=False,
        rows=(
            (StatusCode.BACKGROUND_SEND_ERROR, "SDK background producer failed"),
            (StatusCode.BACKGROUND_WORKER_DISCONNECTED, "SDK background worker gone"),
            (StatusCode.PRODUCER_SEND_FAILED, "SDK producer gave up on a batch"),
            (StatusCode.PRODUCER_CLOSED, "SDK producer already closed"),
            (
                StatusCode.PRODUCER_SEQUENCE_OUT_OF_ORDER,
                "Batch does not follow the last one of its producer",
            ),
            (StatusCode.PRODUCER_EPOCH_FENCED, "A newer epoch of the producer has sent already"),
            (
                StatusCode.PRODUCER_UNKNOWN,
                "Partition does not know the producer; it starts a new epoch",
            ),
        ),
    ),
    # The connection or the queue failed, not the batch: a lost connection comes back, a full
    # queue drains while the caller waits.
    *_section(
        StatusGroup.PRODUCER,
        retriable=True,
        rows=(
            (
                StatusCode.CANNOT_SEND_MESSAGES_DUE_TO_CLIENT_DISCONNECTION,
                "SDK producer lost its connection",
            ),
            (StatusCode.BACKGROUND_SEND_TIMEOUT, "SDK background producer timed out"),
            (StatusCode.BACKGROUND_SEND_BUFFER_FULL, "SDK background producer queue full"),
            (StatusCode.BACKGROUND_SEND_BUFFER_OVERFLOW, "SDK background producer queue overflow"),
        ),
    ),
    *_section(
        StatusGroup.ENCRYPTION,
        retriable=False,
        rows=(
            (StatusCode.INVALID_ENCRYPTION_KEY, "Encryption key unusable"),
            (StatusCode.CANNOT_ENCRYPT_DATA, "Encryption failed"),
            (StatusCode.CANNOT_DECRYPT_DATA, "Decryption failed"),
        ),
    ),
    *_section(
        StatusGroup.CONFIGURATION,
        retriable=False,
        rows=(
            (StatusCode.INVALID_CONFIGURATION, "Configuration value rejected"),
            (StatusCode.INVALID_SERVER_ADDRESS, "Server address unusable"),
            (StatusCode.INVALID_CLIENT_ADDRESS, "Client address unusable"),
            (StatusCode.INVALID_IP_ADDRESS, "IP and port pair unusable"),
            (StatusCode.INVALID_TLS_DOMAIN, "TLS server name unusable"),
            (StatusCode.INVALID_TLS_CERTIFICATE_PATH, "TLS certificate path unusable"),
            (StatusCode.INVALID_TLS_CERTIFICATE, "TLS certificate unusable"),
            (
                StatusCode.FAILED_TO_ADD_CERTIFICATE,
                "Certificate could not be added to the trust store",
            ),
            (StatusCode.INVALID_JWT_ALGORITHM, "JWT algorithm not supported or not configured"),
            (StatusCode.INVALID_JWT_SECRET, "JWT secret unusable"),
            (StatusCode.CANNOT_PARSE_URL, "URL not parseable"),
            (StatusCode.INVALID_SEGMENT_SIZE, "Segment size unusable"),
            (StatusCode.INVALID_CONNECTION_STRING, "Connection string malformed"),
            (StatusCode.INVALID_API_URL, "URL of the HTTP API unusable"),
        ),
    ),
    *_section(
        StatusGroup.CORRUPTION,
        retriable=False,
        rows=(
            (StatusCode.STATE_FILE_CORRUPTED, "State log damaged"),
            (StatusCode.INVALID_STATE_ENTRY_CHECKSUM, "State log record failed its checksum"),
            (StatusCode.CANNOT_READ_MESSAGE_ID, "Message id could not be read"),
            (StatusCode.CANNOT_READ_MESSAGE_STATE, "Message state could not be read"),
            (StatusCode.CANNOT_READ_MESSAGE_TIMESTAMP, "Message timestamp could not be read"),
            (StatusCode.CANNOT_READ_HEADERS_LENGTH, "User header length could not be read"),
            (StatusCode.CANNOT_READ_HEADERS_PAYLOAD, "User header bytes could not be read"),
            (StatusCode.CANNOT_READ_MESSAGE_LENGTH, "Message length could not be read"),
            (StatusCode.CANNOT_READ_MESSAGE_PAYLOAD, "Message payload could not be read"),
            (StatusCode.CANNOT_READ_MESSAGE_CHECKSUM, "Message checksum could not be read"),
            (StatusCode.INVALID_MESSAGE_CHECKSUM, "Message checksum mismatch"),
            (
                StatusCode.MISSING_BASE_OFFSET_RETAINED_MESSAGE_BATCH,
                "Legacy batch lacks base offset",
            ),
            (
                StatusCode.MISSING_LAST_OFFSET_DELTA_RETAINED_MESSAGE_BATCH,
                "Legacy batch lacks last offset delta",
            ),
            (
                StatusCode.MISSING_MAX_TIMESTAMP_RETAINED_MESSAGE_BATCH,
                "Legacy batch lacks max timestamp",
            ),
            (StatusCode.MISSING_LENGTH_RETAINED_MESSAGE_BATCH, "Legacy batch lacks length"),
            (StatusCode.MISSING_PAYLOAD_RETAINED_MESSAGE_BATCH, "Legacy batch lacks payload"),
            (StatusCode.CANNOT_READ_BATCH_BASE_OFFSET, "Legacy batch base offset unreadable"),
            (StatusCode.CANNOT_READ_BATCH_LENGTH, "Legacy batch length unreadable"),
            (StatusCode.CANNOT_READ_LAST_OFFSET_DELTA, "Legacy batch last offset delta unreadable"),
            (StatusCode.CANNOT_READ_MAX_TIMESTAMP, "Legacy batch max timestamp unreadable"),
            (StatusCode.CANNOT_READ_BATCH_PAYLOAD, "Legacy batch payload unreadable"),
            (StatusCode.CANNOT_DESERIALIZE_RESOURCE, "Resource could not be deserialised"),
            (StatusCode.CANNOT_READ_INDEX_OFFSET, "Index offset unreadable"),
            (StatusCode.CANNOT_READ_INDEX_TIMESTAMP, "Index timestamp unreadable"),
        ),
    ),
    *_section(
        StatusGroup.STORAGE,
        retriable=True,
        rows=(
            (StatusCode.CANNOT_CREATE_BASE_DIRECTORY, "Data root directory could not be made"),
            (StatusCode.CANNOT_CREATE_RUNTIME_DIRECTORY, "Runtime directory could not be made"),
            (StatusCode.CANNOT_REMOVE_RUNTIME_DIRECTORY, "Runtime directory could not be removed"),
            (StatusCode.CANNOT_CREATE_STATE_DIRECTORY, "State directory could not be made"),
            (StatusCode.STATE_FILE_NOT_FOUND, "State log absent"),
            (StatusCode.CANNOT_OPEN_DATABASE, "Storage could not be opened"),
            (StatusCode.CANNOT_CREATE_STREAMS_DIRECTORY, "Streams directory could not be made"),
            (StatusCode.CANNOT_CREATE_STREAM_DIRECTORY, "Stream directory could not be made"),
            (StatusCode.CANNOT_CREATE_STREAM_INFO, "Stream info file could not be made"),
            (StatusCode.CANNOT_UPDATE_STREAM_INFO, "Stream info file could not be updated"),
            (StatusCode.CANNOT_OPEN_STREAM_INFO, "Stream info file could not be opened"),
            (StatusCode.CANNOT_READ_STREAM_INFO, "Stream info file could not be read"),
            (StatusCode.CANNOT_CREATE_STREAM, "Stream could not be made"),
            (StatusCode.CANNOT_DELETE_STREAM, "Stream could not be removed"),
            (StatusCode.CANNOT_DELETE_STREAM_DIRECTORY, "Stream directory could not be removed"),
            (StatusCode.STREAM_DIRECTORY_NOT_FOUND, "Stream directory missing on disk"),
            (StatusCode.CANNOT_READ_STREAMS, "Streams could not be read"),
            (StatusCode.CANNOT_CREATE_TOPICS_DIRECTORY, "Topics directory could not be made"),
            (StatusCode.CANNOT_CREATE_TOPIC_DIRECTORY, "Topic directory could not be made"),
            (StatusCode.CANNOT_CREATE_TOPIC_INFO, "Topic info file could not be made"),
            (StatusCode.CANNOT_UPDATE_TOPIC_INFO, "Topic info file could not be updated"),
            (StatusCode.CANNOT_OPEN_TOPIC_INFO, "Topic info file could not be opened"),
            (StatusCode.CANNOT_READ_TOPIC_INFO, "Topic info file could not be read"),
            (StatusCode.CANNOT_CREATE_TOPIC, "Topic could not be made"),
            (StatusCode.CANNOT_DELETE_TOPIC, "Topic could not be removed"),
            (StatusCode.CANNOT_DELETE_TOPIC_DIRECTORY, "Topic directory could not be removed"),
            (StatusCode.CANNOT_POLL_TOPIC, "Topic could not be polled"),
            (StatusCode.CANNOT_READ_TOPICS, "Topics could not be read"),
            (StatusCode.TOPIC_DIRECTORY_NOT_FOUND, "Topic directory missing on disk"),
            (StatusCode.CANNOT_CREATE_PARTITION, "Partition could not be made"),
            (
                StatusCode.CANNOT_CREATE_PARTITIONS_DIRECTORY,
                "Partitions directory could not be made",
            ),
            (StatusCode.CANNOT_CREATE_PARTITION_DIRECTORY, "Partition directory could not be made"),
            (StatusCode.CANNOT_OPEN_PARTITION_LOG_FILE, "Partition log could not be opened"),
            (StatusCode.CANNOT_READ_PARTITIONS, "Partition directories could not be read"),
            (StatusCode.CANNOT_DELETE_PARTITION, "Partition could not be removed"),
            (
                StatusCode.CANNOT_DELETE_PARTITION_DIRECTORY,
                "Partition directory could not be removed",
            ),
            (
                StatusCode.CANNOT_DELETE_CONSUMER_OFFSETS_DIRECTORY,
                "Consumer offsets directory could not be removed",
            ),
            (
                StatusCode.CANNOT_DELETE_CONSUMER_OFFSET_FILE,
                "Consumer offset file could not be removed",
            ),
            (
                StatusCode.CANNOT_CREATE_CONSUMER_OFFSETS_DIRECTORY,
                "Consumer offsets directory could not be made",
            ),
            (StatusCode.CANNOT_READ_CONSUMER_OFFSETS, "Consumer offsets could not be read"),
            (
                StatusCode.CANNOT_OPEN_CONSUMER_OFFSETS_FILE,
                "Consumer offsets file could not be opened",
            ),
            (StatusCode.CANNOT_CREATE_SEGMENT_LOG_FILE, "Segment log file could not be made"),
            (StatusCode.CANNOT_CREATE_SEGMENT_INDEX_FILE, "Segment index file could not be made"),
            (
                StatusCode.CANNOT_CREATE_SEGMENT_TIME_INDEX_FILE,
                "Segment time index file could not be made",
            ),
            (
                StatusCode.CANNOT_SAVE_MESSAGES_TO_SEGMENT,
                "Messages could not be written to the segment",
            ),
            (StatusCode.CANNOT_SAVE_INDEX_TO_SEGMENT, "Index could not be written to the segment"),
            (
                StatusCode.CANNOT_SAVE_TIME_INDEX_TO_SEGMENT,
                "Time index could not be written to the segment",
            ),
            (StatusCode.CANNOT_APPEND_MESSAGE, "Message could not be appended"),
            (StatusCode.CANNOT_READ_MESSAGE, "Message could not be read"),
            (
                StatusCode.CANNOT_CREATE_CONSUMER_GROUP_INFO,
                "Consumer group info file could not be made",
            ),
            (
                StatusCode.CANNOT_DELETE_CONSUMER_GROUP_INFO,
                "Consumer group info file could not be removed",
            ),
            (
                StatusCode.SNAPSHOT_FILE_COMPLETION_FAILED,
                "Diagnostic archive could not be finished",
            ),
            (StatusCode.CANNOT_READ_FILE, "File could not be read"),
            (StatusCode.CANNOT_READ_FILE_METADATA, "File metadata could not be read"),
            (StatusCode.CANNOT_SEEK_FILE, "File seek failed"),
            (StatusCode.CANNOT_APPEND_TO_FILE, "File append failed"),
            (StatusCode.CANNOT_WRITE_TO_FILE, "File write failed, as when the disk is full"),
            (StatusCode.CANNOT_OVERWRITE_FILE, "File overwrite failed"),
            (StatusCode.CANNOT_DELETE_FILE, "File removal failed"),
            (StatusCode.CANNOT_SYNC_FILE, "File sync failed"),
            (StatusCode.IO_ERROR, "Other I/O failure"),
        ),
    ),
    *_section(
        StatusGroup.SERVER,
        retriable=False,
        rows=(
            (StatusCode.ERROR, "Catch-all failure; also what clients map an unrecognised code to"),
            (StatusCode.HTTP_ERROR, "HTTP listener level failure"),
            (StatusCode.CANNOT_GENERATE_JWT, "JWT could not be produced"),
            (StatusCode.SEGMENT_CLOSED, "Segment is sealed"),
            (StatusCode.CANNOT_SERIALIZE_RESOURCE, "Resource could not be serialised"),
            (StatusCode.SHARD_NOT_FOUND, "No shard owns the partition (clients see 3007 instead)"),
            (StatusCode.SHARD_COMMUNICATION_ERROR, "Message between shards failed"),
            (StatusCode.CANNOT_BIND_TO_SOCKET, "Listener could not bind"),
        ),
    ),
    # The server itself says that a repeat will do; a client of 0.9 or later does it by itself.
    *_section(
        StatusGroup.SERVER,
        retriable=True,
        rows=(
            (
                StatusCode.TRANSIENT_NOT_COMMITTED,
                "Outcome unknown yet; repeat the identical request",
            ),
            (
                StatusCode.TRANSIENT_NOT_ACCEPTED,
                "This node did not take the request; repeat it there or elsewhere",
            ),
            (
                StatusCode.LIFECYCLE_OPERATION_PENDING,
                "Resource is being created or deleted; ask again with a new number",
            ),
            (StatusCode.NOT_PRIMARY, "This node is not the primary; ask the one that is"),
            (StatusCode.TOO_MANY_DEFERRED_POLLS, "No room for one more waiting poll"),
            (
                StatusCode.PARTITION_HISTORY_CHANGED,
                "Partition changed while the request was carried out",
            ),
        ),
    ),
    # A repeat might carry the request out twice.
    *_section(
        StatusGroup.TIMEOUT,
        retriable=False,
        rows=(
            (StatusCode.OPERATION_UNCERTAIN, "Unknown whether the request was carried out"),
            (StatusCode.FETCH_PROGRESS_UNCERTAIN, "Unknown how far a fetch has committed"),
        ),
    ),
)

STATUSES: Mapping[int, Status] = index_statuses(_RECORDS)
