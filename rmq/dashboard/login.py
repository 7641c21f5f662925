"""Logging in and out."""

from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.dashboard.access import Access
from rmq.dashboard.page import Page, Visit


class LoginPages:
    def __init__(self, access: Access, page: Page) -> None:
        self._access = access
        self.routes: list[BaseRoute] = [
            page.view("/login", self.form, open_to_all=True),
            page.action("/login", self.log_in, open_to_all=True),
            page.action("/logout", self.log_out, open_to_all=True),
        ]

    async def form(self, visit: Visit) -> Response:
        if visit.session.role:
            return visit.go("/")
        return visit.show("login.html", next=own_path(visit.text("next")))

    async def log_in(self, visit: Visit) -> Response:
        session = await self._access.log_in(visit.needed("name"), visit.raw("password"))
        if session is None:
            visit.session.notes.append(("bad", "This name and password do not belong together."))
            return visit.show("login.html", 401, next=own_path(visit.text("next")))
        self._access.log_out(visit.session.key)
        visit.session = session
        return visit.go(own_path(visit.text("next")))

    async def log_out(self, visit: Visit) -> Response:
        self._access.log_out(visit.session.key)
        visit.session = self._access.guest()
        return visit.go("/login" if self._access.needs_login else "/")


def own_path(wanted: str) -> str:
    """The wanted path if it is one of this dashboard: a link to the login must not lead to another site."""
    try:
        parts = urlsplit(wanted)
    except ValueError:  # "//[", and others that no address begins with
        return "/"
    fine = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return wanted if fine and wanted.isprintable() else "/"
