"""The process: serves the pages over HTTP, with one client of the cluster."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from rmq.client import Client
from rmq.client.shared.tasks import TaskSet
from rmq.clock import Clock
from rmq.dashboard.access import READ, WRITE, Access, read_users
from rmq.dashboard.consumers import ConsumerPages
from rmq.dashboard.dead import DeadLetterPages
from rmq.dashboard.history import History
from rmq.dashboard.load import LoadPages
from rmq.dashboard.login import LoginPages
from rmq.dashboard.messages import MessagePages
from rmq.dashboard.nameservers import NameserverPages
from rmq.dashboard.overview import OverviewPages
from rmq.dashboard.page import Page
from rmq.dashboard.producers import ProducerPages
from rmq.dashboard.topics import TopicPages
from rmq.dashboard.traces import TracePages
from rmq.dashboard.users import UserPages
from rmq.dashboard.waiting import WaitingPages
from rmq.dashboard.watch import Watch
from rmq.errors import InvalidArgument

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_STOP_S = 3


@dataclass(frozen=True, kw_only=True)
class Options:
    """`users`: the users file; None: nobody logs in. `open`: nobody logs in even where other machines can reach the dashboard.
    `data`: a directory for the history. `hosts`: further host names that browsers may use. `root`: the path prefix of a proxy."""

    host: str = "127.0.0.1"
    port: int = 8082
    users: Path | None = None
    open: bool = False
    read_only: bool = False
    data: Path
    hosts: tuple[str, ...] = ()
    root: str = ""

    def checked(self) -> "Options":
        """Raises InvalidArgument if everybody on a network could change the cluster and nobody asked for that."""
        if self.host not in _LOOPBACK and self.users is None and not self.open:
            raise InvalidArgument(
                f"on {self.host} others than this machine can reach the dashboard: name who may log in with --users FILE "
                "(`rmq dashboard user` makes it), or let everybody with --no-login"
            )
        if self.root and (not self.root.startswith("/") or self.root.endswith("/")):
            raise InvalidArgument(f"root path {self.root!r}: write it as /rmq")
        return self


@contextlib.asynccontextmanager
async def served(client: Client, options: Options, clock: Clock) -> AsyncIterator[str]:
    """Serves until the block ends, and yields its URL. Opens and closes `client`. Raises InvalidArgument."""
    options.checked()
    users = read_users(options.users) if options.users else None
    access = Access(users, READ if options.read_only else WRITE, clock.monotonic)
    async with client, contextlib.AsyncExitStack() as stack:
        page, watch = Page(access, clock), Watch(client, clock)
        history = stack.enter_context(contextlib.closing(History(options.data)))
        load = LoadPages(client, page, history, clock)
        app = _app(client, page, watch, load, options)
        listening = _listen(options.host, options.port)
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                root_path=options.root,
                timeout_graceful_shutdown=_STOP_S,
                limit_concurrency=500,
            )
        )
        jobs = TaskSet()
        jobs.start(watch.keep_looking(), "watch groups")
        jobs.start(load.keep_counting(), "count the load")
        serving = asyncio.create_task(server.serve([listening]), name="serve pages")

        async def stop() -> None:
            server.should_exit = True
            await jobs.close()
            await serving
            listening.close()

        stack.push_async_callback(stop)
        host, port = listening.getsockname()[:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _app(client: Client, page: Page, watch: Watch, load: LoadPages, options: Options) -> Starlette:
    routes = [
        *LoginPages(page.access, page).routes,
        *OverviewPages(client, page, watch.lagging).routes,
        *TopicPages(client, page).routes,
        *ConsumerPages(client, page).routes,
        *ProducerPages(client, page).routes,
        *MessagePages(client, page).routes,
        *TracePages(client, page).routes,
        *DeadLetterPages(client, page).routes,
        *WaitingPages(client, page).routes,
        *NameserverPages(client, page).routes,
        *UserPages(client, page).routes,
        *load.routes,
    ]
    page.known(routes)
    routes.append(Mount("/static", StaticFiles(packages=[("rmq.dashboard", "static")])))
    return Starlette(routes=routes, middleware=list(_guards(page.access, options)))


def _guards(access: Access, options: Options) -> Sequence[Middleware]:
    """Without login, a stranger's page must not reach this one under a host name of its own (DNS rebinding)."""
    if access.needs_login:
        return []
    hosts = [*_LOOPBACK, "[::1]", *options.hosts, *(() if options.host in ("0.0.0.0", "::") else (options.host,))]
    return [Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)]


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise InvalidArgument(f"cannot listen on {host}:{port}: {error.strerror}; choose another port with --listen") from error
    return found


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The command handles signals, not uvicorn."""
        yield
