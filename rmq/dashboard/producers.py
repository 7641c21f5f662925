"""Producers: which are connected, to which brokers, and when each was heard of last."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client
from rmq.client.admin import calls, one
from rmq.client.admin.calls import leading
from rmq.client.admin.one import ProducerInfo
from rmq.dashboard.bounded import ask, ask_all
from rmq.dashboard.looks import broker_groups
from rmq.dashboard.page import Page, Visit

PER_PAGE = 50


class Member(NamedTuple):
    """A client in a producer group. `brokers`: names of those that it is connected to. `heard_ms`: time of its last heartbeat."""

    group: str
    client_id: str
    address: str
    language: str
    version: int
    heard_ms: int
    brokers: list[str]


class ProducerPages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [page.view("/producers", self.producers)]

    async def producers(self, visit: Visit) -> Response:
        """`topic`: asks only the brokers that have it, since a producer is connected to all brokers of its topics."""
        word, topic = visit.text("q").lower(), visit.text("topic")
        brokers = await broker_groups(self._client)
        if topic:
            route = await ask(calls.topic_route(self._client, topic))
            having = {group.name for group in route.brokers}
            brokers = [group for group in brokers if group.name in having]
        answers, silent = await ask_all({group.name: one.producers(self._client, leading(group)) for group in brokers})
        found = [member for member in members(answers) if word in member.group.lower() or word in member.client_id.lower()]
        page, number, pages = visit.cut(found, PER_PAGE)
        return visit.show(
            "producers.html",
            members=page,
            total=len(found),
            number=number,
            pages=pages,
            q=visit.text("q"),
            topic=topic,
            brokers=brokers,
            silent=silent,
        )


def members(answers: Mapping[str, Mapping[str, Sequence[ProducerInfo]]]) -> list[Member]:
    """Sorted by group and client. `told`: what each broker says."""
    found: dict[tuple[str, str], Member] = {}
    for broker, groups in answers.items():
        for group, clients in groups.items():
            for each in clients:
                said = Member(group, each.client_id, each.address, each.language, each.version, each.last_update_timestamp, [])
                known = found.get((group, each.client_id), said)
                newest = max(known, said, key=lambda member: member.heard_ms)
                found[group, each.client_id] = newest._replace(brokers=[*known.brokers, broker])
    return sorted(found.values())
