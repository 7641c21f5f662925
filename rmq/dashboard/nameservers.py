"""Nameservers: which of them answer, and whether they tell the same."""

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client
from rmq.client.admin import one
from rmq.dashboard.bounded import NAMESERVERS_S, ask_all
from rmq.dashboard.looks import merged, registered
from rmq.dashboard.page import Page, Visit


class NameserverPages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [page.view("/nameservers", self.nameservers)]

    async def nameservers(self, visit: Visit) -> Response:
        answers, deaf = await registered(self._client)
        topics, _ = await ask_all({address: one.topics(self._client, address) for address in answers}, NAMESERVERS_S)
        views = {address: {group.name: group.addresses for group in brokers} for address, brokers in answers.items()}
        return visit.show(
            "nameservers.html",
            addresses=self._client.session.nameservers.addresses,
            deaf=deaf,
            views=views,
            topics={address: len(names) for address, names in topics.items()},
            brokers=merged(answers),
        )
