"""Messages that a consumer failed: they come again, or go to the dead letters."""

from collections.abc import Callable

from rmq.broker.catalog import Catalog
from rmq.broker.feature import Feature
from rmq.broker.handlers.sendback import SendBackHandlers
from rmq.broker.held.intake import Intake
from rmq.broker.held.outlet import Outlet


class Retries(Feature):
    """For the arguments, and `given_up`, see `SendBackHandlers`."""

    def __init__(self, catalog: Catalog, outlet: Outlet, intake: Intake, locked: Callable[[str], bool]) -> None:
        failed = SendBackHandlers(catalog, outlet, intake, locked)
        self.given_up = failed.given_up
        self.handlers = failed.by_request()
