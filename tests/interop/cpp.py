"""A program on RocketMQ's C++ client, by its Python wrapper from PyPI: `send` or `consume`, then lines on standard output.

    cpp.py send NAMESERVER GROUP TOPIC COUNT        SENT status body
    cpp.py consume NAMESERVER GROUP TOPIC TAGS      STARTED, then GOT body; ends with its standard input
    cpp.py mixing NAMESERVER TOPIC GROUP            STARTED, then in order AT milliseconds queue offset body, as Interop.java
    cpp.py send|consume ... USER SECRET             the same, with signed requests; REFUSED for what was not sent
    cpp.py check                                    nothing: whether the library loads

Run as a program of its own: the client starts threads and writes its own log under $HOME.
"""

import os
import sys
import time
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]
from rocketmq.exceptions import RocketMQException  # type: ignore[import-not-found]


def tell(*words: str) -> None:
    """One line in one write: consumers are called in several threads, whose lines must not mix."""
    os.write(1, f"{' '.join(words)}\n".encode())


def send(nameserver: str, group: str, topic: str, count: str, *who: str) -> None:
    producer = Producer(group)
    producer.set_namesrv_addr(nameserver)
    if who:
        producer.set_session_credentials(*who, "")
    producer.start()
    for number in range(int(count)):
        message = Message(topic)
        message.set_keys(f"k{number}")
        message.set_tags("red")
        message.set_body(f"cpp-{number}")
        try:
            tell("SENT", producer.send_sync(message).status.name, f"cpp-{number}")
        except RocketMQException as error:
            tell("REFUSED", type(error).__name__)
    producer.shutdown()


def consume(nameserver: str, group: str, topic: str, tags: str, *who: str) -> None:
    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(nameserver)
    if who:
        consumer.set_session_credentials(*who, "")
    consumer.subscribe(topic, lambda message: tell("GOT", message.body.decode()), tags)
    consumer.start()
    tell("STARTED")
    sys.stdin.read()
    consumer.shutdown()


def mixing(nameserver: str, topic: str, group: str) -> None:
    def handle(message: Any) -> None:
        tell("AT", f"{time.time() * 1000:.0f}", f"{message.queue_id}", f"{message.queue_offset}", message.body.decode())

    consumer = PushConsumer(group, orderly=True)
    consumer.set_namesrv_addr(nameserver)
    consumer.subscribe(topic, handle)
    consumer.start()
    tell("STARTED")
    sys.stdin.read()
    consumer.shutdown()


if __name__ == "__main__" and sys.argv[1] != "check":
    {"send": send, "consume": consume, "mixing": mixing}[sys.argv[1]](*sys.argv[2:])
