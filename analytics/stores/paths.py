"""Finds the store directories that the option `path` names: one, a list, or patterns with * ? [] {}. No Spark."""

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from analytics.stores.files import Directory, Remote, directory
from analytics.stores.options import given_options
from rmq.errors import InvalidArgument, StoreError
from rmq.secretfiles import without_keys

_CHOICE = re.compile(r"\{([^{}]*)\}")


def stores_at(options: Mapping[str, str]) -> list[Directory]:
    """The stores of the options `path` and `paths` (Spark's name for several), each once. Raises InvalidArgument, StoreError."""
    given = given_options(options)
    texts = [text for name in ("path", "paths") if given.get(name) for text in _listed(given[name], name)]
    if not texts:
        raise InvalidArgument('the option "path" is missing: give it the store directory')
    try:
        found = [store for text in texts for store in _stores(text)]
    except OSError as error:
        named = without_keys(", ".join(texts))
        raise StoreError(f"{named} cannot be looked at: {error}; run the job as the broker's user, or on a copy") from error
    return list({(store.resolve() if isinstance(store, Path) else store): store for store in found}.values())


def resolved(stores: Iterable[Directory]) -> list[Directory]:
    """Makes local paths absolute, so that workers find them in any working directory. Remote places have addresses already."""
    return [store.resolve() if isinstance(store, Path) else store for store in stores]


def _listed(text: str, name: str) -> Sequence[str]:
    """One path, or a JSON list of them."""
    if not text.startswith("["):
        return [text]
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return [text]  # a pattern
    if not found or not all(isinstance(each, str) for each in found):
        raise InvalidArgument(f'the option "{name}" is a path, or a JSON list of paths, not {text}')
    return list(found)


def _stores(text: str) -> Iterator[Directory]:
    place = directory(text)
    if isinstance(place, Path) and place.exists():  # a store, even with such characters in its name
        yield place
        return
    for each in _choices(text):
        place = directory(each)
        if not _is_pattern(str(place) if isinstance(place, Path) else place.address):
            yield place
            continue
        matches = [found for found in _matching(place) if (found / "commitlog").is_dir()]
        if not matches:
            raise InvalidArgument(f"no store directory (with commitlog/ in it) matches {without_keys(each)}")
        yield from matches


def _choices(text: str) -> Iterator[str]:
    """The texts that braces stand for: a{b,c} gives ab and ac."""
    found = _CHOICE.search(text)
    if not found:
        yield text
        return
    for each in found[1].split(","):
        yield from _choices(text[: found.start()] + each + text[found.end() :])


def _matching(pattern: Directory) -> list[Directory]:
    """The directories that match a pattern, by name."""
    if isinstance(pattern, Remote):
        scheme, _, rest = pattern.address.partition("://")
        host, *names = rest.rstrip("/").split("/")
        start: Directory = pattern._replace(address=f"{scheme}://{host}/")
    else:
        start = Path(pattern.anchor)
        names = list(pattern.parts[1:] if pattern.anchor else pattern.parts)
    places = [start]
    for name in names:
        places = [place for each in places for place in _children(each, name)]
    return places


def _children(place: Directory, name: str) -> Iterable[Directory]:
    if not _is_pattern(name):
        return [place / name]
    if not place.is_dir():
        return []
    return sorted((each for each in place.iterdir() if fnmatch.fnmatchcase(each.name, name)), key=str)


def _is_pattern(text: str) -> bool:
    return any(mark in text for mark in "*?[")
