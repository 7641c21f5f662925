"""How a program reaches a cluster, by its environment: the command line's variables, for programs without flags."""

from collections.abc import Mapping

from rmq.config.kinds import flag
from rmq.errors import InvalidArgument
from rmq.net.transport.tls import Tls
from rmq.scram import Credentials
from rmq.secretfiles import read_lines

_FILES = {"ca": "RMQ_TLS_CA", "cert": "RMQ_TLS_CERT", "key": "RMQ_TLS_KEY", "server_name": "RMQ_TLS_SERVER_NAME"}


def credentials_of(environment: Mapping[str, str]) -> Credentials | None:
    """The user in RMQ_USER, with the password of RMQ_PASSWORD_FILE (mode 0600) or RMQ_PASSWORD. Raises InvalidArgument."""
    user, file, password = (environment.get(name, "") for name in ("RMQ_USER", "RMQ_PASSWORD_FILE", "RMQ_PASSWORD"))
    if not user:
        return None
    if file:
        password = read_lines(file)[0]
    if not password:
        raise InvalidArgument("RMQ_USER is set: write the password into a file of mode 0600 and its path into RMQ_PASSWORD_FILE")
    return Credentials(user, password)


def tls_of(environment: Mapping[str, str]) -> Tls | None:
    """Of RMQ_TLS_CA or RMQ_TLS (trust the system's authorities), and what they show; None: plain connections. Raises
    InvalidArgument."""
    said = {name: environment[variable] for name, variable in _FILES.items() if environment.get(variable)}
    try:
        wanted = bool(flag().parse(environment.get("RMQ_TLS") or "false"))
    except (ValueError, TypeError):
        raise InvalidArgument("RMQ_TLS: true or false") from None
    if said and not wanted and "ca" not in said:
        raise InvalidArgument("RMQ_TLS_CERT, RMQ_TLS_KEY: whom to trust? Set RMQ_TLS_CA, or RMQ_TLS=true")
    return Tls(**said) if said or wanted else None
