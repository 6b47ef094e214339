"""What a client offers of request and reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from iggy_sdk.request_reply.caller import RequestReply
from iggy_sdk.request_reply.options import RequestReplyOptions, ResponderOptions
from iggy_sdk.request_reply.responder import Responder

if TYPE_CHECKING:
    from iggy_protocol import Identifier
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.request_reply.options import RequestReplySettings, ResponderSettings
    from iggy_sdk.serde import Serde


Q = TypeVar("Q")
P = TypeVar("P")


class RequestReplyMethods:
    """The methods of a client for request and reply."""

    @overload
    def request_reply(
        self: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        *,
        reply_topic: Identifier,
        request_serde: None = None,
        reply_serde: None = None,
        **settings: Unpack[RequestReplySettings],
    ) -> RequestReply[bytes | str, bytes]: ...
    @overload
    def request_reply(
        self: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        *,
        reply_topic: Identifier,
        request_serde: Serde[Q],
        reply_serde: Serde[P],
        **settings: Unpack[RequestReplySettings],
    ) -> RequestReply[Q, P]: ...
    def request_reply(
        self: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        *,
        reply_topic: Identifier,
        request_serde: Serde[Any] | None = None,
        reply_serde: Serde[Any] | None = None,
        **settings: Unpack[RequestReplySettings],
    ) -> RequestReply[Any, Any]:
        """Begin a caller: ``async with client.request_reply(...) as calls``.

        Args:
            stream: name or id of the stream of requests and replies.
            topic: name or id of the topic of the requests.
            reply_topic: name or id of the topic of the replies; all callers may share it.
            request_serde: how requests are written; without serdes, values are bytes.
            reply_serde: how replies are read.
            settings: any option of ``RequestReplySettings``.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        options = RequestReplyOptions(
            reply_topic=reply_topic,
            request_serde=request_serde,
            reply_serde=reply_serde,
            **settings,
        )
        return RequestReply(self, stream, topic, options)

    @overload
    def responder(
        self: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        *,
        request_serde: None = None,
        reply_serde: None = None,
        **settings: Unpack[ResponderSettings],
    ) -> Responder[bytes, bytes | str]: ...
    @overload
    def responder(
        self: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        *,
        request_serde: Serde[Q],
        reply_serde: Serde[P],
        **settings: Unpack[ResponderSettings],
    ) -> Responder[Q, P]: ...
    def responder(
        self: ClientInterface,
        stream: Identifier,
        topic: Identifier,
        *,
        request_serde: Serde[Any] | None = None,
        reply_serde: Serde[Any] | None = None,
        **settings: Unpack[ResponderSettings],
    ) -> Responder[Any, Any]:
        """Begin a responder: ``async with client.responder(...) as responder``.

        Args:
            stream: name or id of the stream of the requests.
            topic: name or id of the topic of the requests.
            request_serde: how requests are read; without serdes, values are bytes.
            reply_serde: how replies are written.
            settings: any option of ``ResponderSettings``.

        Raises:
            ConfigurationError: an option has a value that cannot be used.
            TypeError: there is no such option.
        """
        options = ResponderOptions(request_serde=request_serde, reply_serde=reply_serde, **settings)
        return Responder(self, stream, topic, options)
