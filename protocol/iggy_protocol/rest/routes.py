"""The table of routes: methods, paths, success statuses, and the HTTP status of each error.

A server registers the routes, a client looks up its commands.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from iggy_protocol.codes import CommandCode
from iggy_protocol.records import record
from iggy_protocol.rest import bodies, metadata_changes, shapes
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


METADATA_CHANGES: Final = "get_metadata_changes"
"""Changes of metadata are JSON of their own over HTTP, so no command of clients leads there."""

_TOPIC = "/streams/{stream_id}/topics/{topic_id}"


@record
class Route:
    """One row of the table.

    Attributes:
        method: the HTTP method.
        path: the path, with its parameters in braces.
        operation: its command, or a name where there is no command.
        body: the shape of the request's JSON; none when the request has no body.
        query: the shape of the query; none when there are no parameters.
        success: the HTTP status of success.
        reply: the shape of the answer's JSON; ``str`` for text, ``bytes`` for an archive, none for
            no body.
        public: whether it works without a JWT.
        newer_body: the shape of the JSON from 0.9 on, which is told from ``body`` by its keys.
    """

    method: Literal["DELETE", "GET", "POST", "PUT"]
    path: str
    operation: CommandCode | str
    body: type[Any] | None = None
    query: type[Any] | None = None
    success: int = 200
    reply: Any = None
    public: bool = False
    newer_body: Any = None

    @property
    def name(self) -> str:
        """The operation in lower case, as in ``get_streams``."""
        operation = self.operation
        return operation.name.lower() if isinstance(operation, CommandCode) else operation


_SYSTEM: Final = (
    Route("GET", "/", "name", reply=str, public=True),
    Route("GET", "/ping", CommandCode.PING, reply=str, public=True),
    Route("GET", "/metrics", "metrics", reply=str, public=True),
    Route("GET", "/stats", CommandCode.GET_STATS, reply=shapes.StatsShape),
    Route("GET", "/cluster/metadata", CommandCode.GET_CLUSTER_METADATA, reply=shapes.ClusterShape),
    Route(
        "GET",
        "/options/{scope}",
        CommandCode.DESCRIBE_OPTIONS,
        reply=list[shapes.OptionDescriptionShape],
    ),
    Route(
        "GET",
        "/metadata/changes",
        METADATA_CHANGES,
        query=metadata_changes.MetadataChangesQuery,
        reply=metadata_changes.MetadataChangesShape,
    ),
    Route("GET", "/clients", CommandCode.GET_CLIENTS, reply=list[shapes.ClientShape]),
    Route("GET", "/clients/{client_id}", CommandCode.GET_CLIENT, reply=shapes.ClientDetailsShape),
    Route("POST", "/snapshot", CommandCode.GET_SNAPSHOT, body=bodies.SnapshotBody, reply=bytes),
)

_USERS: Final = (
    Route(
        "POST",
        "/users/login",
        CommandCode.LOGIN_USER,
        body=bodies.LoginBody,
        reply=shapes.IdentityShape,
        public=True,
    ),
    Route(
        "POST",
        "/users/refresh-token",
        "refresh_token",
        body=bodies.RefreshTokenBody,
        reply=shapes.IdentityShape,
        public=True,
    ),
    Route("DELETE", "/users/logout", CommandCode.LOGOUT_USER, success=204),
    Route("GET", "/users", CommandCode.GET_USERS, reply=list[shapes.UserShape]),
    Route(
        "POST",
        "/users",
        CommandCode.CREATE_USER,
        body=bodies.CreateUserBody,
        reply=shapes.UserDetailsShape,
    ),
    Route("GET", "/users/{user_id}", CommandCode.GET_USER, reply=shapes.UserDetailsShape),
    Route(
        "PUT",
        "/users/{user_id}",
        CommandCode.UPDATE_USER,
        body=bodies.UpdateUserBody,
        newer_body=bodies.ResourcePatch,
        success=204,
    ),
    Route(
        "PUT",
        "/users/{user_id}/permissions",
        CommandCode.UPDATE_PERMISSIONS,
        body=bodies.UpdatePermissionsBody,
        success=204,
    ),
    Route(
        "PUT",
        "/users/{user_id}/password",
        CommandCode.CHANGE_PASSWORD,
        body=bodies.ChangePasswordBody,
        success=204,
    ),
    Route("DELETE", "/users/{user_id}", CommandCode.DELETE_USER, success=204),
    Route(
        "GET",
        "/personal-access-tokens",
        CommandCode.GET_PERSONAL_ACCESS_TOKENS,
        reply=list[shapes.PersonalAccessTokenShape],
    ),
    Route(
        "POST",
        "/personal-access-tokens",
        CommandCode.CREATE_PERSONAL_ACCESS_TOKEN,
        body=bodies.CreatePersonalAccessTokenBody,
        reply=shapes.RawPersonalAccessTokenShape,
    ),
    Route(
        "DELETE",
        "/personal-access-tokens/{name}",
        CommandCode.DELETE_PERSONAL_ACCESS_TOKEN,
        success=204,
    ),
    Route(
        "POST",
        "/personal-access-tokens/login",
        CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
        body=bodies.LoginWithTokenBody,
        reply=shapes.IdentityShape,
        public=True,
    ),
)

_STREAMS: Final = (
    Route("GET", "/streams", CommandCode.GET_STREAMS, reply=list[shapes.StreamShape]),
    Route(
        "POST",
        "/streams",
        CommandCode.CREATE_STREAM,
        body=bodies.CreateStreamBody,
        reply=shapes.StreamDetailsShape,
    ),
    Route("GET", "/streams/{stream_id}", CommandCode.GET_STREAM, reply=shapes.StreamDetailsShape),
    Route(
        "PUT",
        "/streams/{stream_id}",
        CommandCode.UPDATE_STREAM,
        body=bodies.UpdateStreamBody,
        newer_body=bodies.ResourcePatch,
        success=204,
    ),
    Route("DELETE", "/streams/{stream_id}", CommandCode.DELETE_STREAM, success=204),
    Route("DELETE", "/streams/{stream_id}/purge", CommandCode.PURGE_STREAM, success=204),
)

_TOPICS: Final = (
    Route(
        "GET",
        "/streams/{stream_id}/topics",
        CommandCode.GET_TOPICS,
        reply=list[shapes.TopicShape],
    ),
    Route(
        "POST",
        "/streams/{stream_id}/topics",
        CommandCode.CREATE_TOPIC,
        body=bodies.CreateTopicBody,
        newer_body=bodies.NewTopicBody,
        reply=shapes.TopicDetailsShape,
    ),
    Route("GET", _TOPIC, CommandCode.GET_TOPIC, reply=shapes.TopicDetailsShape),
    Route(
        "PUT",
        _TOPIC,
        CommandCode.UPDATE_TOPIC,
        body=bodies.UpdateTopicBody,
        newer_body=bodies.ResourcePatch,
        success=204,
    ),
    Route("DELETE", _TOPIC, CommandCode.DELETE_TOPIC, success=204),
    Route("DELETE", f"{_TOPIC}/purge", CommandCode.PURGE_TOPIC, success=204),
    Route(
        "POST",
        f"{_TOPIC}/partitions",
        CommandCode.CREATE_PARTITIONS,
        body=bodies.CreatePartitionsBody,
        success=201,
    ),
    Route(
        "DELETE",
        f"{_TOPIC}/partitions",
        CommandCode.DELETE_PARTITIONS,
        query=bodies.DeletePartitionsQuery,
        success=204,
    ),
    Route(
        "DELETE",
        f"{_TOPIC}/partitions/{{partition_id}}",
        CommandCode.DELETE_SEGMENTS,
        query=bodies.DeleteSegmentsQuery,
        success=204,
    ),
)

_MESSAGES: Final = (
    Route(
        "POST",
        f"{_TOPIC}/messages",
        CommandCode.SEND_MESSAGES,
        body=bodies.SendMessagesBody,
        query=bodies.SendQuery,
        success=201,
    ),
    Route(
        "GET",
        f"{_TOPIC}/messages",
        CommandCode.POLL_MESSAGES,
        query=bodies.PollQuery,
        reply=shapes.PolledMessagesShape,
    ),
    Route(
        "GET",
        f"{_TOPIC}/messages/flush/{{partition_id}}/{{fsync}}",
        CommandCode.FLUSH_UNSAVED_BUFFER,
    ),
    Route(
        "GET",
        f"{_TOPIC}/consumer-offsets",
        CommandCode.GET_CONSUMER_OFFSET,
        query=bodies.ConsumerOffsetQuery,
        reply=shapes.ConsumerOffsetShape,
    ),
    Route(
        "PUT",
        f"{_TOPIC}/consumer-offsets",
        CommandCode.STORE_CONSUMER_OFFSET,
        body=bodies.StoreConsumerOffsetBody,
        success=204,
    ),
    Route(
        "DELETE",
        f"{_TOPIC}/consumer-offsets/{{consumer_id}}",
        CommandCode.DELETE_CONSUMER_OFFSET,
        query=bodies.DeleteConsumerOffsetQuery,
        success=204,
    ),
    Route(
        "GET",
        f"{_TOPIC}/consumer-groups",
        CommandCode.GET_CONSUMER_GROUPS,
        reply=list[shapes.ConsumerGroupShape],
    ),
    Route(
        "POST",
        f"{_TOPIC}/consumer-groups",
        CommandCode.CREATE_CONSUMER_GROUP,
        body=bodies.CreateConsumerGroupBody,
        success=201,
        reply=shapes.ConsumerGroupDetailsShape,
    ),
    Route(
        "GET",
        f"{_TOPIC}/consumer-groups/{{group_id}}",
        CommandCode.GET_CONSUMER_GROUP,
        reply=shapes.ConsumerGroupDetailsShape,
    ),
    Route(
        "DELETE",
        f"{_TOPIC}/consumer-groups/{{group_id}}",
        CommandCode.DELETE_CONSUMER_GROUP,
        success=204,
    ),
)

ROUTES: Final[tuple[Route, ...]] = (*_SYSTEM, *_USERS, *_STREAMS, *_TOPICS, *_MESSAGES)
"""All routes; a literal path comes before the template that would also match it."""


def index_routes(routes: Iterable[Route]) -> Mapping[CommandCode, Route]:
    """Index the routes by command, and refuse a command or a method and path that come twice."""
    places: set[tuple[str, str]] = set()
    by_command: dict[CommandCode, Route] = {}
    for route in routes:
        place = (route.method, route.path)
        if place in places or route.operation in by_command:
            raise ValueError(f"{route.method} {route.path} is in the table twice")
        places.add(place)
        if isinstance(route.operation, CommandCode):
            by_command[route.operation] = route
    return MappingProxyType(by_command)


ROUTES_BY_COMMAND: Final[Mapping[CommandCode, Route]] = index_routes(ROUTES)
"""The route of every command that has one; GetMe, and joining and leaving a group, have none."""

# The web console is public by its literal path only, whether or not it is there.
PUBLIC_PATHS: Final = frozenset({"/ui"} | {route.path for route in ROUTES if route.public})

_HTTP_STATUSES: Final[dict[int, int]] = {
    StatusCode.RESOURCE_NOT_FOUND: 404,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.UNAUTHORIZED: 403,
    StatusCode.INVALID_PERSONAL_ACCESS_TOKEN: 401,
    StatusCode.ACCESS_TOKEN_MISSING: 401,
    StatusCode.INVALID_ACCESS_TOKEN: 401,
    StatusCode.CLIENT_NOT_FOUND: 404,
    StatusCode.STREAM_ID_NOT_FOUND: 404,
    StatusCode.TOPIC_ID_NOT_FOUND: 404,
    StatusCode.PARTITION_NOT_FOUND: 404,
    StatusCode.CONSUMER_OFFSET_NOT_FOUND: 404,
    StatusCode.SEGMENT_NOT_FOUND: 404,
    StatusCode.CONSUMER_GROUP_ID_NOT_FOUND: 404,
    StatusCode.CONSUMER_GROUP_NAME_NOT_FOUND: 404,
    StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND: 404,
}


def status_for(code: int) -> int:
    """Return the HTTP status that goes with a status of the binary protocol."""
    return _HTTP_STATUSES.get(code, 400)
