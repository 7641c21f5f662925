"""The client library: everything a service needs to send and consume (guide: docs/developers.md)."""

from rmq.client.client import Client
from rmq.client.consumer.consumer import Consumer
from rmq.client.consumer.lights import LightConsumer
from rmq.client.consumer.lites import LiteConsumer, LiteMessage
from rmq.client.consumer.retries import RetryLater
from rmq.client.consumer.simple import PoppedMessage, SimpleConsumer
from rmq.client.producer.producer import Producer
from rmq.client.producer.transactions import Decision, TransactionProducer, TransactionResult
from rmq.client.shared.message import Message, ReceivedMessage, SendResult, SendStatus
from rmq.client.shared.settings import ClientSettings
from rmq.errors import BadBytes, Closed, InvalidArgument, Refusal, RmqError, StoreError, Unknown, Unreachable
from rmq.model import MessageQueue
from rmq.net.transport.tls import Tls

__all__ = [
    "BadBytes",
    "Client",
    "ClientSettings",
    "Closed",
    "Consumer",
    "Decision",
    "InvalidArgument",
    "LightConsumer",
    "LiteConsumer",
    "LiteMessage",
    "Message",
    "MessageQueue",
    "PoppedMessage",
    "Producer",
    "ReceivedMessage",
    "Refusal",
    "RetryLater",
    "RmqError",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "StoreError",
    "Tls",
    "TransactionProducer",
    "TransactionResult",
    "Unknown",
    "Unreachable",
]
