"""The first answer on a connection: which node this is."""

from rmq.config.settings import NodeSettings
from rmq.net.codec.native import VERSION
from rmq.net.commands.link import Hello, HelloAnswer
from rmq.net.transport.server import Call, Handler


def hello(settings: NodeSettings, address: str) -> Handler:
    """A handler for `Hello`. `address`: where clients reach this node."""

    def answer(request: Hello, _call: Call) -> HelloAnswer:
        return HelloAnswer(
            min(request.version, VERSION),
            settings.cluster_name,
            settings.broker_name,
            settings.broker_id,
            address,
            settings.max_message_bytes,
        )

    return answer
