"""Home, Cluster and Node: is the cluster healthy, why not, who lags, how full the disks are; each node with all that it tells."""

from collections.abc import Callable

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client
from rmq.client.admin import calls, configuration, groups
from rmq.dashboard.bounded import ask, ask_all
from rmq.dashboard.looks import look, troubles
from rmq.dashboard.page import Page, Visit
from rmq.dashboard.watch import Lags
from rmq.errors import InvalidArgument

_SHOWN_LAGS = 20


class OverviewPages:
    """`lagging()`: the groups that are behind."""

    def __init__(self, client: Client, page: Page, lagging: Callable[[], Lags]) -> None:
        self._client = client
        self._lagging = lagging
        self.routes: list[BaseRoute] = [
            page.view("/", self.home),
            page.view("/cluster", self.cluster),
            page.view("/node", self.node),
            page.action("/cluster/lead", self.transfer),
            page.action("/cluster/clean", self.clean),
        ]

    async def home(self, visit: Visit) -> Response:
        seen = await look(self._client)
        found = troubles(seen, visit.now_ms)
        return visit.show("home.html", seen=seen, troubles=found, lags=self._lagging(), most=_SHOWN_LAGS)

    async def cluster(self, visit: Visit) -> Response:
        seen = await look(self._client)
        return visit.show("cluster.html", seen=seen, troubles=troubles(seen, visit.now_ms))

    async def node(self, visit: Visit) -> Response:
        """Only for a node of the cluster: the dashboard dials no address that a stranger names."""
        address = visit.needed("address")
        found = [node for node in (await look(self._client)).nodes if node.address == address]
        if not found:
            raise InvalidArgument(f"no node of this cluster is at {address}")
        answers, silent = await ask_all({address: configuration.broker_config(self._client, address)}, visit.left_s(0.5))
        return visit.show("node.html", node=found[0], config=answers.get(address, {}), why=silent.get(address, ""))

    async def transfer(self, visit: Visit) -> Response:
        broker, node = visit.needed("broker"), visit.text("node")
        was = await ask(groups.transfer_leader(self._client, broker, node, 15.0), 20.0)
        return visit.go(
            "/cluster", f"{broker}: the node at {was} gave up leadership to {node or 'the follower that is furthest'}."
        )

    async def clean(self, visit: Visit) -> Response:
        broker = visit.needed("broker")
        where = await calls.delete_expired_log(self._client, broker=broker)
        return visit.go("/cluster", f"{broker}: expired log files are deleted at {', '.join(where)}.")
