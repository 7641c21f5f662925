"""Makes secret files for a new cluster, and changes the nodes' secret while it runs. Files have mode 0600 and appear whole.

`rmq.config.kinds.credentials` tells their form. Secrets are never printed, nor in an error.
"""

import json
import secrets
from pathlib import Path
from typing import Final

from rmq.errors import InvalidArgument
from rmq.secretfiles import read_lines, replace

NODE, ADMIN = "node", "admin"
_BYTES: Final = 32
Row = dict[str, str]


def make(folder: Path) -> list[Path]:
    """Makes the files of a new cluster: for its nodes, for its first super user, and one with only that user's password. Existing
    files stay. Returns the new files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = []
    if not (node := folder / NODE).exists():
        made.append(_write(node, [_row(NODE)]))
    admin, password = folder / ADMIN, folder / f"{ADMIN}.password"
    if not admin.exists():
        secret = _secret()
        made += [_put(password, secret), _put(admin, json.dumps({"username": ADMIN, "password": secret}))]
    return made


def add(file: Path) -> str:
    """Adds a secret after the others, which nodes then accept, too. Returns its name. Raises InvalidArgument, OSError."""
    rows = _read(file)
    names = {row["accessKey"] for row in rows}
    name = next(f"{NODE}-{number}" for number in range(2, len(rows) + 3) if f"{NODE}-{number}" not in names)
    _write(file, [*rows, _row(name)])
    return name


def use_newest(file: Path) -> str:
    """Moves the last secret to the front: nodes then log in with it. Returns its name. Raises InvalidArgument, OSError."""
    rows = _read(file)
    _write(file, [rows[-1], *rows[:-1]])
    return rows[-1]["accessKey"]


def drop_others(file: Path) -> list[str]:
    """Keeps only the first secret. Returns the names of the others. Raises InvalidArgument, OSError."""
    first, *others = _read(file)
    _write(file, [first])
    return [row["accessKey"] for row in others]


def _read(file: Path) -> list[Row]:
    try:
        rows = json.loads("\n".join(read_lines(str(file))))
        rows = rows if isinstance(rows, list) else [rows]
        if rows and all(isinstance(row["accessKey"], str) and isinstance(row["secretKey"], str) for row in rows):
            return rows
    except (ValueError, TypeError, KeyError):
        pass
    raise InvalidArgument(f'{file}: it does not hold {{"accessKey":"NAME","secretKey":"SECRET"}}, or a list of such') from None


def _row(name: str) -> Row:
    return {"accessKey": name, "secretKey": _secret()}


def _secret() -> str:
    return secrets.token_urlsafe(_BYTES)


def _write(file: Path, rows: list[Row]) -> Path:
    return _put(file, json.dumps(rows[0] if len(rows) == 1 else rows))


def _put(file: Path, text: str) -> Path:
    replace(file, f"{text}\n".encode())
    return file
