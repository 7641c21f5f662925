"""What every page has: its visitor, its frame, its guards.

S16: templates escape everything, and the browser is told to run no script and load nothing but this server's own files.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from rmq.clock import Clock
from rmq.dashboard.access import COOKIE, Access, Session
from rmq.dashboard.addresses import link
from rmq.dashboard.bounded import BROKERS_S, LEAST_S, PAGE_S
from rmq.dashboard.formats import FILTERS
from rmq.errors import InvalidArgument, Refusal, RmqError, Unknown

T = TypeVar("T")
log = logging.getLogger("rmq.dashboard")
FORM = "application/x-www-form-urlencoded"  # as our pages send it; in others text may be coded so that it is none
MAX_FORM_BYTES = 8 << 20  # enough for a message of 4 MiB, each byte escaped as up to three; browsers cut a form off long before
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Visit:
    """One request of one visitor."""

    def __init__(self, page: "Page", request: Request, session: Session, form: FormData | None) -> None:
        self.request = request
        self.session = session
        self._page = page
        self._form = form
        self._began = page.clock.monotonic()

    @property
    def base(self) -> str:
        """The prefix of every path when a proxy stands in front, else ""."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def now_ms(self) -> int:
        return self._page.clock.wall_ms()

    @property
    def acts(self) -> bool:
        """Whether the request is to change something."""
        return self._form is not None

    def left_s(self, most_s: float = BROKERS_S) -> float:
        """How long the next question may take, so that the page is ready within `PAGE_S` whichever node is silent."""
        return max(LEAST_S, min(most_s, PAGE_S - (self._page.clock.monotonic() - self._began)))

    def text(self, name: str, default: str = "") -> str:
        """A field of the form, else of the address, with surrounding spaces removed."""
        found = self._form.get(name) if self._form and name in self._form else self.request.query_params.get(name)
        return found.strip() if isinstance(found, str) else default

    def raw(self, name: str) -> str:
        """A field of the form exactly as it was typed."""
        found = self._form.get(name) if self._form else ""
        return found if isinstance(found, str) else ""

    def number(self, name: str, default: int = 0, least: int = 0, most: int = 2**31 - 1) -> int:
        """Raises InvalidArgument."""
        text = self.text(name)
        if not text:
            return default
        try:
            found = int(text)
        except ValueError:
            raise InvalidArgument(f"{name}: {text!r} is no number") from None
        if not least <= found <= most:
            raise InvalidArgument(f"{name}: {found} is not between {least} and {most}")
        return found

    def cut(self, rows: Sequence[T], size: int) -> tuple[Sequence[T], int, int]:
        """The rows of the page that is wanted, its number, and how many there are. Beyond the last one, which may have gone
        meanwhile, it is the last one."""
        pages = max(1, -(-len(rows) // size))
        number = min(self.number("page", 1, 1), pages)
        return rows[(number - 1) * size : number * size], number, pages

    def needed(self, name: str) -> str:
        """The field's text. Raises InvalidArgument if it is empty."""
        found = self.text(name)
        if not found:
            raise InvalidArgument(f"{name} is missing")
        return found

    def ticked(self, name: str) -> list[str]:
        """All values that the form has under that name."""
        return [each for each in self._form.getlist(name) if isinstance(each, str)] if self._form else []

    def show(self, template: str, status: int = 200, **values: object) -> Response:
        """`values`: for the template. Notes of the last action are shown here, once."""
        notes, self.session.notes[:] = list(self.session.notes), []
        frame = {"base": self.base, "session": self.session, "notes": notes, "now_ms": self.now_ms}
        path = self.request.url.path.removeprefix(self.base)
        return HTMLResponse(self._page.render(template, {**frame, "path": path, **values}), status)

    def trouble(self, status: int, title: str, why: str) -> Response:
        """Says why something was not done. `status`: of an action; a page that somebody only looks at has 200, because browsers
        report any other on their console as a fault of the dashboard."""
        return self.show("trouble.html", status if self.acts else 200, title=title, why=why)

    def go(self, path: str, note: str = "", kind: str = "good") -> Response:
        """Redirects to another page, which shows `note`."""
        if note:
            self.session.notes.append((kind, note))
        return RedirectResponse(f"{self.base}{path}", 303)


Handler = Callable[[Visit], Awaitable[Response]]


class Page:
    """Makes a route of each handler: checks who may use it, puts its page into the frame, shows why it failed."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self.access = access
        self.clock = clock
        self._templates = Environment(
            loader=PackageLoader("rmq.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals["link"] = link
        self._templates.globals["menu"] = set[str]()

    def known(self, routes: Sequence[BaseRoute]) -> None:
        """Tells which pages there are; the menu shows only these."""
        self._templates.globals["menu"] = {route.path for route in routes if isinstance(route, Route)}

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        return self._templates.get_template(template).render(values)

    def view(self, path: str, handler: Handler, *, open_to_all: bool = False) -> Route:
        """A page that changes nothing. `open_to_all`: also for visitors who have not logged in."""

        async def endpoint(request: Request) -> Response:
            visit = Visit(self, request, self._session(request), None)
            if not open_to_all and not visit.session.role:
                wanted = request.url.path.removeprefix(visit.base) + (f"?{request.url.query}" if request.url.query else "")
                visit.session.notes[:] = []
                return self._finish(
                    visit, visit.go("/login") if wanted == "/" else visit.go(f"/login?next={quote(wanted, safe='')}")
                )
            return self._finish(visit, await self._carried_out(visit, handler))

        return Route(path, endpoint, methods=["GET"])

    def action(self, path: str, handler: Handler, *, open_to_all: bool = False) -> Route:
        """A form that changes something: only for users with the role `write`, and only from a page of this dashboard."""

        async def endpoint(request: Request) -> Response:
            session = self._session(request)
            if not (length := request.headers.get("content-length", "")).isdecimal() or int(length) > MAX_FORM_BYTES:
                return self._finish(Visit(self, request, session, None), Response("form too long", 413))
            if request.headers.get("content-type", FORM).partition(";")[0].strip().lower() != FORM:
                return self._finish(Visit(self, request, session, None), Response(f"send the form as {FORM}", 415))
            async with request.form(max_files=0, max_fields=2000, max_part_size=MAX_FORM_BYTES) as form:
                visit = Visit(self, request, session, form)
                if not hmac.compare_digest(visit.text("token").encode(), session.token.encode()):
                    why = "This form is not from a page that was shown to you lately. Go back, reload the page, and try again."
                    return self._finish(visit, visit.show("trouble.html", 403, why=why, title="Not done"))
                if not open_to_all and not session.may_change:
                    why = "You may look, but not change anything. Somebody with the role `write` can."
                    answer = visit.show("trouble.html", 403, why=why, title="Not allowed")
                    self._audit(visit, form, answer)
                    return self._finish(visit, answer)
                answer = await self._carried_out(visit, handler)
                if not open_to_all:
                    self._audit(visit, form, answer)
                return self._finish(visit, answer)

        return Route(path, endpoint, methods=["POST"])

    def _session(self, request: Request) -> Session:
        return self.access.session(request.cookies.get(COOKIE, "")) or self.access.guest()

    async def _carried_out(self, visit: Visit, handler: Handler) -> Response:
        try:
            return await handler(visit)
        except InvalidArgument as error:
            return visit.trouble(400, "That will not do", str(error))
        except Refusal as error:
            return visit.trouble(409, "Refused", str(error))
        except (RmqError, TimeoutError) as error:
            if visit.acts and isinstance(error, Unknown):
                why = f"{error}. It may or may not have been done: look before you do it again."
                return visit.trouble(504, "No answer", why)
            return visit.trouble(503, "Nobody answers", _why(error))

    def _audit(self, visit: Visit, form: FormData, answer: Response) -> None:
        """Logs who did what, without message bodies and tokens."""
        names = [name for name in form if name not in ("token", "body", "password")]
        said = {name: values[0] if len(values := form.getlist(name)) == 1 else values for name in names}
        host = visit.request.client.host if visit.request.client else "?"
        path, user = visit.request.url.path, visit.session.user or "nobody"
        outcome = "done" if answer.status_code < 400 else f"failed with {answer.status_code}"
        log.info("%s by %s from %s: %s %s", path, user, host, outcome, said)

    def _finish(self, visit: Visit, response: Response) -> Response:
        response.headers.update(HEADERS)
        if visit.request.cookies.get(COOKIE) != visit.session.key:
            secure = visit.request.url.scheme == "https"
            response.set_cookie(COOKIE, visit.session.key, path=visit.base or "/", httponly=True, samesite="lax", secure=secure)
        return response


def _why(error: Exception) -> str:
    return str(error) or "Nobody answered in time."
