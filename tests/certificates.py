"""Certificates of all sorts, made once for a test run."""

from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from rmq.clock import SystemClock
from rmq.net.transport.tls import Tls
from rmq.ops.certs import Authority, Made

HERE = ("localhost", "127.0.0.1")


class Certificates:
    """In `folder`. `tls(name, ...)`: what a side shows that has this certificate, and trusts the authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.make(folder / "ours", SystemClock())
        self.made = {
            "node": self.authority.issue("node", HERE),
            "client": self.authority.issue("client", ["alice"]),
            "elsewhere": self.authority.issue("elsewhere", ["other.example", "192.0.2.1"]),
            "nameless": self.authority.issue("nameless", []),
            "expired": self.authority.issue("expired", HERE, days=-1),
            "early": self.authority.issue("early", HERE, begin=datetime.now(UTC) + timedelta(days=2)),
        }

    @cached_property
    def foreign(self) -> Authority:
        """Another authority, with the same names."""
        other = Authority.make(self.folder / "foreign", SystemClock())
        self.made["foreign"] = other.issue("node", HERE)
        return other

    @property
    def ca(self) -> str:
        return str(self.authority.files.cert)

    def tls(self, name: str = "", **others: str) -> Tls:
        """`name` "": shows nothing."""
        if name == "foreign":
            assert self.foreign
        made = self.made[name] if name else Made(Path(), Path())
        shown = {"cert": str(made.cert), "key": str(made.key)} if name else {}
        return Tls(**{"ca": self.ca, **shown, **others})  # type: ignore[arg-type]
