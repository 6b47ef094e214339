"""The SDK without await, for scripts, notebooks and Spark.

    from iggy_sdk.blocking import IggyClient

    with IggyClient("iggy://iggy:secret@localhost:8090") as client:
        with client.producer("shop", "orders") as producer:
            producer.send(b"tea", key="ada")
        with client.consumer("till", "shop", "orders", until_end=True) as consumer:
            for message in consumer:
                print(message.offset, message.payload)

Names, arguments and types are those of the async SDK. The work is done there, on a thread that
each client has for itself. Options, errors, serdes and the like are imported from ``iggy_sdk``.
"""

from __future__ import annotations

from iggy_sdk.blocking.client import IggyClient
from iggy_sdk.blocking.consumer import IggyConsumer
from iggy_sdk.blocking.consumer_builder import ConsumerBuilder
from iggy_sdk.blocking.producer import Producer
from iggy_sdk.blocking.producer_builder import ProducerBuilder
from iggy_sdk.blocking.reader import BatchIterator, MessageIterator, MessageList, ReceivedMessage
from iggy_sdk.blocking.request_reply import RequestReply, Responder
from iggy_sdk.blocking.wrapper import Receipt

__all__ = [
    "BatchIterator",
    "ConsumerBuilder",
    "IggyClient",
    "IggyConsumer",
    "MessageIterator",
    "MessageList",
    "Producer",
    "ProducerBuilder",
    "Receipt",
    "ReceivedMessage",
    "RequestReply",
    "Responder",
]
