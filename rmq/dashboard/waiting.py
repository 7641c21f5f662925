"""Delayed messages and transactions: what waits, and until when; recalling a message, checking a transaction again."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client, MessageQueue, ReceivedMessage
from rmq.client.admin import lookups, pending
from rmq.client.admin.calls import leading
from rmq.dashboard.bounded import ask, ask_all
from rmq.dashboard.looks import broker_groups
from rmq.dashboard.messages import PER_PAGE, Listed, listed, place
from rmq.dashboard.page import Page, Visit
from rmq.errors import InvalidArgument, RmqError
from rmq.model import DELAY_TOPIC, HALF_TOPIC, TIMER_TOPIC

KINDS = {
    "timer": (TIMER_TOPIC, "with a time of their own"),
    "level": (DELAY_TOPIC, "with a delay level, and retries"),
    "half": (HALF_TOPIC, "of open transactions (half messages)"),
    "parked": (pending.PARKED_TOPIC, "of transactions that nobody ended"),
}


class Waiting(NamedTuple):
    """`until_ms`: when the message is due, 0 if it waits for no time. `recalled`: None if that is not known."""

    message: ReceivedMessage
    topic: str
    until_ms: int
    recalled: bool | None


class OpenTransaction(NamedTuple):
    """`message`: None if it could not be read, or its transaction ended meanwhile."""

    broker: str
    half: pending.OpenHalf
    message: ReceivedMessage | None


class WaitingPages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [
            page.view("/waiting", self.waiting),
            page.action("/waiting/recall", self.recall),
            page.action("/waiting/resume", self.resume),
        ]

    async def waiting(self, visit: Visit) -> Response:
        kind = visit.text("kind", "timer")
        if kind not in KINDS:
            raise InvalidArgument(f"kind {kind!r}: one of {', '.join(KINDS)}")
        if kind == "half":
            return await self._open_transactions(visit)
        found, why = Listed([], "", {}), ""
        try:
            found = await listed(visit, self._client, KINDS[kind][0], None, None)
        except (RmqError, TimeoutError) as error:
            why = "" if "TOPIC_NOT_EXIST" in str(error) else str(error) or "Nobody answered in time."
        messages = [message for message in found.messages if not pending.is_mark(message)]
        recalled = await self._recalled(visit, messages) if kind == "timer" else {}
        rows = [_row(message, kind != "parked", recalled.get(message.message_id)) for message in messages]
        return visit.show("waiting.html", kind=kind, kinds=KINDS, rows=rows, found=found, why=why, place=place)

    async def _recalled(self, visit: Visit, messages: Sequence[ReceivedMessage]) -> Mapping[str, bool]:
        """By message id, without those of which nobody says it in time."""
        seconds = visit.left_s()
        asked = {
            message.message_id: pending.is_recalled(self._client, message, seconds * 0.8)
            for message in messages
            if pending.due_ms(message) > visit.now_ms
        }
        return (await ask_all(asked, seconds))[0]

    async def _open_transactions(self, visit: Visit) -> Response:
        """The oldest ones of each broker."""
        group = visit.text("group")
        leaders = {each.name: leading(each) for each in await broker_groups(self._client)}
        asked = {name: pending.open_halves(self._client, address, group, PER_PAGE) for name, address in leaders.items()}
        answers, silent = await ask_all(asked, visit.left_s(0.7))
        halves = sorted(
            ((name, half) for name, answer in answers.items() for half in answer.halves),
            key=lambda at: (at[1].since_ms, at),
        )[:PER_PAGE]
        messages, _ = await ask_all({at: pending.half_message(self._client, *at) for at in halves}, visit.left_s())
        rows = [OpenTransaction(*at, messages.get(at)) for at in halves]
        total = sum(answer.total for answer in answers.values())
        return visit.show("halves.html", kinds=KINDS, rows=rows, total=total, group=group, silent=silent, place=place)

    async def recall(self, visit: Visit) -> Response:
        queue = MessageQueue(TIMER_TOPIC, visit.needed("broker"), visit.number("queue"))
        message = await ask(lookups.at(self._client, queue, visit.number("offset", most=2**63 - 1)))
        await pending.recall(self._client, message)
        return visit.go("/waiting", f"{message.message_id} will not come.")

    async def resume(self, visit: Visit) -> Response:
        """Only at a broker of the cluster: the id names the address to dial, and a stranger may have made it up."""
        word = visit.needed("id")
        address = lookups.parse_offset_id(word).address
        if address not in {at for group in await broker_groups(self._client) for at in group.addresses.values()}:
            raise InvalidArgument(f"no broker of this cluster is at {address}")
        await pending.resume_check(self._client, word)
        return visit.go("/waiting?kind=parked", "Its producers are asked again what became of the transaction.")


def _row(message: ReceivedMessage, timed: bool, recalled: bool | None) -> Waiting:
    topic = message.properties.get("REAL_TOPIC") or message.topic
    return Waiting(message, topic, pending.due_ms(message) if timed else 0, recalled)
