"""Addresses of pages with their query fields, quoted so that they can hold any name. Pure."""

from urllib.parse import urlencode


def link(path: str, **fields: object) -> str:
    """`path?name=value&...` without the fields that are None or ""."""
    said = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(said)}" if said else path
