"""Sends of which tools show how long they take."""

from rmq.client import SendResult
from rmq.client.admin.probes import ENOUGH, probes
from rmq.codes import ResponseCode
from rmq.net.commands import Send
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, refuse


async def test_a_broker_that_takes_nothing_is_not_asked_for_long(broker: Broker, make_client: MakeClient) -> None:
    """Each may take the whole time of a request: `rmq admin sendMsgStatus` said nothing for minutes."""
    client = make_client(request_timeout_s=0.5)
    async with client.producer() as producer:
        assert len([each async for each in probes(client, producer, "T", 10, 50)]) == 50
        taken = len(broker.seen(Send))
        broker.faults[Send] = [refuse(ResponseCode.MESSAGE_ILLEGAL)] * 1000
        found = [each.outcome async for each in probes(client, producer, "T", 10, 50)]
    assert taken == 50
    assert len(found) == ENOUGH
    assert not any(isinstance(outcome, SendResult) for outcome in found)
