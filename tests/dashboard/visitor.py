"""Somebody who looks at a real dashboard over HTTP, without a browser."""

import contextlib
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from rmq.client import Client, ClientSettings
from rmq.clock import SystemClock
from rmq.dashboard.bounded import ACTIONS_S
from rmq.dashboard.serve import Options, served
from rmq.scram import Credentials

NOBODY = Credentials("", "")


class Visitor:
    """`text`: of the last page, as a reader sees it; `page`: its HTML."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.page = ""
        self.status = 0
        self.token = ""

    @property
    def text(self) -> str:
        plain = re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style)\b.*?</\1>", "", self.page))
        return " ".join(html.unescape(plain).replace("\u202f", "").split())

    async def get(self, path: str, **fields: Any) -> str:
        """The text of the page."""
        return self._took(await self.http.get(path, params=fields or None))

    async def post(self, path: str, **fields: Any) -> str:
        """The text of the page that it leads to. The token is that of the last page, unless given."""
        return self._took(await self.http.post(path, data={"token": self.token, **fields}))

    def _took(self, answer: httpx.Response) -> str:
        self.page, self.status = answer.text, answer.status_code
        if found := re.search(r'name="token" value="([^"]+)"', self.page):
            self.token = found[1]
        for name in ("Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options"):
            assert name in answer.headers, f"{answer.url} lacks {name}"
        return self.text


@contextlib.asynccontextmanager
async def dashboard(
    nameservers: str, folder: Path, *, patience_s: float = ACTIONS_S, who: Credentials = NOBODY, **options: Any
) -> AsyncIterator[str]:
    """Its URL. `patience_s`: of its client with one node. `who`: its user at the cluster."""
    settings = ClientSettings(request_timeout_s=patience_s, connect_timeout_s=patience_s)
    client = Client(nameservers, settings=settings, user=who.name, password=who.secret)
    async with served(client, Options(port=0, data=folder, **options), SystemClock()) as url:
        yield url


@contextlib.asynccontextmanager
async def visiting(nameservers: str, folder: Path, **options: Any) -> AsyncIterator[Visitor]:
    async with (
        dashboard(nameservers, folder, **options) as url,
        httpx.AsyncClient(base_url=url, follow_redirects=True, timeout=30, trust_env=False) as http,
    ):
        yield Visitor(http)
