"""What each process of `rmq node --processes N` is told besides the settings of all: names, ports and stores of its own.

Process number i is a broker group of its own, so several machines that run the same number form as many groups.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rmq.config.files import Entry
from rmq.config.settings import NodeSettings
from rmq.errors import InvalidArgument
from rmq.names import address_text

PORT_STEP: Final = 10
"""Between the ports of two brokers: each may take the one two below, too."""
_ORIGIN: Final = "--processes"
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # of a wildcard


class Part(NamedTuple):
    """One process: what it is called in logs, and the settings in which it differs from the others."""

    name: str
    is_nameserver: bool
    entries: list[Entry]


def parts_of(settings: NodeSettings, count: int, namesrv_port: int) -> list[Part]:
    """`count` brokers, and before them a nameserver if the role says so; `namesrv_port`: where that one listens.

    Raises InvalidArgument where nothing can be divided, or a store would be left out.
    """
    if not settings.with_broker:
        raise InvalidArgument(f"{_ORIGIN}: a nameserver is one process; for more of them start this command more often")
    check_stores(settings, count)
    found = []
    namesrvs = list(settings.namesrv_addresses)
    if settings.with_nameserver:
        host = settings.listen_host.strip("[]")
        host = _LOOPBACK.get(host, host)
        own = address_text(host, namesrv_port)
        namesrvs = [own, *(address for address in namesrvs if address != own)]
        told = {"role": "nameserver", "listen_port": namesrv_port, "metrics_port": _after(settings.metrics_port, count)}
        found.append(_part("nameserver", told))
    return [*found, *(_broker(settings, number, namesrvs) for number in range(count))]


def _broker(settings: NodeSettings, number: int, namesrvs: list[str]) -> Part:
    name, step = f"{settings.broker_name}-{number}", number * PORT_STEP
    told: dict[str, object] = {
        "role": "broker",
        "broker_name": name,
        "store_dir": str(settings.store_dir / name),
        "listen_port": _after(settings.listen_port, step),
        "peer_port": _after(settings.peer_port, step),
        "peers": ";".join(_shifted(peer, step) for peer in settings.peers),
        "peer_group": name if settings.peer_group else "",
        "namesrv_addresses": ";".join(namesrvs),
        "metrics_port": _after(settings.metrics_port, number),
    }
    return _part(name, told)


def _part(name: str, told: dict[str, object]) -> Part:
    return Part(name, told["role"] == "nameserver", [Entry(setting, value, _ORIGIN) for setting, value in told.items() if value])


def _after(port: int, by: int) -> int:
    """0 stays: any free one."""
    return port + by if port else 0


def _shifted(peer: str, by: int) -> str:
    place, _, port = peer.rpartition(":")
    return f"{place}:{int(port) + by}"


def check_stores(settings: NodeSettings, count: int) -> None:
    """Raises InvalidArgument if messages would be left out, because another number of processes stored them here."""
    root = settings.store_dir
    if count > 1 and _is_store(root):
        name = f"{settings.broker_name}-0"
        raise InvalidArgument(
            f"store_dir: {root} is the store of one process, and with {_ORIGIN} each has one below it; move what is in it "
            f"to {root / name}, which becomes the store of the broker {name}"
        )
    used = max(_numbers(settings), default=-1) + 1
    if used > max(count, 1) or (count == 1 and used):
        raise InvalidArgument(
            f"store_dir: below {root} are the stores of {used} processes; start the node with {_ORIGIN} {used}, or move away "
            "the stores whose messages are not needed any more"
        )


def _numbers(settings: NodeSettings) -> Iterator[int]:
    """Of the processes that have a store here."""
    before = f"{settings.broker_name}-"
    for store in settings.store_dir.glob(f"{before}*"):
        number = store.name.removeprefix(before)
        if number.isdecimal() and _is_store(store):
            yield int(number)


def _is_store(directory: Path) -> bool:
    return (directory / "commitlog").is_dir()
