"""What a user of Apache's Python client for gRPC does, in a process of its own: `python -m tests.door.official PORT`.

Sends and receives messages of each kind through a door, and prints what came, a line of JSON for each kind.
"""

import json
import queue
import sys
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

KINDS = ("Plain", "Fifo", "Delayed", "Transactional")
GROUP, TRIES_GROUP = "official", "stubborn"
_LONG_S = 60.0


class Check(TransactionChecker):
    def check(self, message: Any) -> Any:
        return TransactionResolution.COMMIT if message.body == b"open" else TransactionResolution.ROLLBACK


class Taken(MessageListener):
    """Fails what is hard, the first time."""

    def __init__(self) -> None:
        self.came: queue.Queue[tuple[str, int]] = queue.Queue()

    def consume(self, message: Any) -> Any:
        self.came.put((message.body.decode(), message.delivery_attempt))
        again = message.body == b"hard" and message.delivery_attempt == 1
        return ConsumeResult.FAILURE if again else ConsumeResult.SUCCESS


def message(topic: str, body: str, **others: Any) -> Any:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in others.items():
        setattr(made, name, value)
    return made


def taken(consumer: Any, count: int, wanted: Callable[[Any], Any]) -> list[Any]:
    found: list[Any] = []
    end = time.monotonic() + _LONG_S
    while len(found) < count and time.monotonic() < end:
        for one in consumer.receive(16, 30) or ():
            found.append(wanted(one))
            consumer.ack(one)
    return found


def main(port: str) -> None:
    settings = ClientConfiguration(f"127.0.0.1:{port}", Credentials(), request_timeout=5)
    producer = Producer(settings, KINDS, checker=Check())
    producer.startup()
    consumer = SimpleConsumer(settings, GROUP, {topic: FilterExpression() for topic in KINDS}, await_duration=1)
    consumer.startup()
    for _ in KINDS:  # it asks for one topic after the other; the group begins behind the last message
        consumer.receive(1, 30)

    def say(kind: str, found: object) -> None:
        print(json.dumps({kind: found}), flush=True)

    sent = message("Plain", "plain", tag="a", keys="k1")
    sent.add_property("colour", "red")
    producer.send(sent)
    say("Plain", taken(consumer, 1, lambda one: [one.body.decode(), one.tag, sorted(one.keys), one.properties]))
    for number in range(8):
        producer.send(message("Fifo", str(number), message_group="order-7"))
    say("Fifo", taken(consumer, 8, lambda one: [int(one.body), one.message_group]))
    began = time.time()
    producer.send(message("Delayed", "later", delivery_timestamp=int(began) + 2))
    say("Delayed", taken(consumer, 1, lambda one: [one.body.decode(), time.time() >= int(began) + 2]))
    for body, end in (("kept", "commit"), ("dropped", "rollback"), ("open", "")):
        transaction = producer.begin_transaction()
        producer.send(message("Transactional", body), transaction)
        if end:
            getattr(transaction, end)()
    say("Transactional", sorted(taken(consumer, 2, lambda one: one.body.decode())))
    consumer.shutdown()

    listener = Taken()
    pushed = PushConsumer(settings, TRIES_GROUP, listener, {"Plain": FilterExpression("b")})
    pushed.startup()
    came: list[tuple[str, int]] = []
    end_s = time.monotonic() + _LONG_S
    while len(came) < 2 and time.monotonic() < end_s:  # until its first pop the group is not there
        if not came:
            producer.send(message("Plain", "hard", tag="b"))
        try:
            came.append(listener.came.get(timeout=2))
        except queue.Empty:
            continue
    say("pushed", [attempt for _, attempt in came if attempt > 1][:1] or came)
    pushed.shutdown()
    producer.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
