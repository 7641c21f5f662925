"""Addresses of pages with their questions, spelled so that any name can stand in them. Pure."""

from urllib.parse import urlencode


def link(path: str, **fields: object) -> str:
    """`path?name=value&...`; what is None or "" is left out."""
    said = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(said)}" if said else path
