"""Policies: who may do what to which topics, groups and clusters, from where [org.apache.rocketmq.auth.authorization].

A subject has Custom and Default entries. Among the Custom entries that match a request the most specific one decides: a
literal name, then the longest prefix, then a whole kind (`Topic:*`), then everything (`*`); a Deny wins among equal ones. If
no Custom entry matches, the Default entries decide in the same way. If no entry matches, the request is denied. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any, Final, NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.staged import StagedTable

ACTIONS: Final = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All", "Any")
KINDS: Final = ("Cluster", "Namespace", "Topic", "Group")
CUSTOM, DEFAULT = "Custom", "Default"
ALLOW, DENY = "Allow", "Deny"
MAX_ENTRIES: Final = 1000  # of one subject
_LITERAL, _PREFIX, _KIND, _EVERYTHING = range(4)  # the first decides
_KINDS: Final = {kind.lower(): kind for kind in KINDS}


class Pattern(NamedTuple):
    """`breadth`: one of the four above. `kind` "" is any."""

    breadth: int
    kind: str
    name: str

    def fits(self, kind: str, name: str) -> bool:
        if self.breadth == _EVERYTHING:
            return True
        if kind != self.kind:
            return False
        if self.breadth == _PREFIX:
            return name.startswith(self.name)
        return self.breadth == _KIND or name == self.name


class Entry(NamedTuple):
    """The field order is that of the state record. `resource` as RocketMQ writes it: `Topic:orders`, `Topic:ord*`, `Topic:*`,
    `*`. `sources`: addresses and networks; none: from anywhere."""

    resource: str
    actions: list[str]
    sources: list[str] = []
    decision: str = ALLOW


class Need(NamedTuple):
    """A request does one of `actions` to that topic, group or cluster."""

    kind: str
    name: str
    actions: tuple[str, ...]


Acl = dict[str, list[Entry]]
"""The entries by policy type, CUSTOM and DEFAULT."""


@lru_cache(4096)
def pattern_of(resource: str) -> Pattern:
    """Raises Refusal (INVALID_PARAMETER)."""
    if resource == "*":
        return Pattern(_EVERYTHING, "", "")
    kind, colon, name = resource.partition(":")
    known = _KINDS.get(kind.lower())
    if not colon or known is None or not name:
        raise _bad(f"resource {resource!r}: write Topic:, Group: or Cluster: and a name, a prefix with * behind it, or *")
    if name == "*":
        return Pattern(_KIND, known, "")
    if name.endswith("*"):
        return Pattern(_PREFIX, known, name.partition("*")[0])
    return Pattern(_LITERAL, known, name)


def canonical(resource: str) -> str:
    """As answers show it: in whatever case its kind is written, it is the same resource [ResourceType.getByName]."""
    kind, colon, name = resource.partition(":")
    return f"{_KINDS.get(kind.lower(), kind)}{colon}{name}"


def permits(acl: Acl | None, need: Need, source: str) -> bool:
    """Whether these entries permit the request to a normal user. `source`: the client's IP address."""
    for policy in (CUSTOM, DEFAULT) if acl else ():
        entries = [entry for entry in (acl or {}).get(policy, ()) if _fits(entry, need, source)]
        if entries:
            return min(entries, key=_rank).decision == ALLOW
    return False


def _rank(entry: Entry) -> tuple[int, int, bool]:
    breadth, _, name = pattern_of(entry.resource)
    return breadth, -len(name) if breadth == _PREFIX else 0, entry.decision != DENY


def _fits(entry: Entry, need: Need, source: str) -> bool:
    acts = "Any" in need.actions or "All" in entry.actions or any(action in entry.actions for action in need.actions)
    return acts and pattern_of(entry.resource).fits(need.kind, need.name) and _comes_from(entry.sources, source)


def _comes_from(sources: Sequence[str], source: str) -> bool:
    if not sources:
        return True
    try:
        address = ip_address(source.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in _network(one) for one in sources)


@lru_cache(4096)
def _network(text: str) -> Any:
    return ip_network(text, strict=False)


def checked(entry: Entry) -> Entry:
    """The entry in its stored form. Raises Refusal (INVALID_PARAMETER), which says what is allowed."""
    pattern_of(entry.resource)
    if "*" in entry.resource[:-1]:  # "Topic:*-secret" would mean no topic at all, and "Topic:*secret*" each topic
        raise _bad(f"resource {entry.resource!r}: a * stands at the end only, for all names that begin so")
    spelled = {action.lower(): action for action in ACTIONS}
    actions = [spelled.get(action.lower(), "") for action in entry.actions]
    if not actions or not all(actions) or "Any" in actions:
        raise _bad(f"actions {', '.join(entry.actions) or '(none)'}: write some of {', '.join(ACTIONS[:-1])}")
    decision = {"allow": ALLOW, "deny": DENY}.get(entry.decision.lower())
    if decision is None:
        raise _bad(f"decision {entry.decision!r}: Allow or Deny")
    for source in entry.sources:
        try:
            _network(source)
        except ValueError:
            raise _bad(f"source {source!r}: an IP address, or a network as 10.0.0.0/8") from None
    return Entry(canonical(entry.resource), actions, list(entry.sources), decision)


def merged(acl: Acl | None, added: Mapping[str, Iterable[Entry]]) -> Acl:
    """Adds entries; they replace those of the same resource from before [AuthorizationMetadataManagerImpl]. Raises Refusal."""
    found = {policy: list(entries) for policy, entries in (acl or {}).items()}
    for said, entries in added.items():
        policy = _type_of(said)
        by_resource = _by_resource(found.get(policy, ())) | _by_resource(map(checked, entries))
        found[policy] = [entry for beside in by_resource.values() for entry in beside]
    if sum(map(len, found.values())) > MAX_ENTRIES:
        raise _bad(f"one subject has at most {MAX_ENTRIES} entries; use prefixes")
    return found


def _by_resource(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Several may be there for one resource, as one from each network."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(canonical(entry.resource), []).append(entry)
    return found


def without(acl: Acl, policy: str, resource: str) -> Acl:
    """Removes the entry of that resource ("": of all), of that policy type ("": of both). Raises Refusal."""
    chosen = _type_of(policy) if policy else ""
    return {
        each: kept
        for each, entries in acl.items()
        if (
            kept := [
                one for one in entries if chosen not in ("", each) or canonical(resource) not in ("", canonical(one.resource))
            ]
        )
    }


def _type_of(said: str) -> str:
    """CUSTOM or DEFAULT, however it is spelled [PolicyType.getByName]. Raises Refusal."""
    for policy in (CUSTOM, DEFAULT):
        if policy.lower() == said.lower():
            return policy
    raise _bad(f"policyType {said!r}: Custom or Default")


class PolicyTable(StagedTable[Acl]):
    """Rows by subject: `User:bob`."""

    def apply(self, subject: str, value: Mapping[str, Iterable[Sequence[Any]]] | None, time_ms: int = 0) -> None:
        """A committed state line: entries by kind, or None. `time_ms`: when it was stored."""
        row = None if value is None else {policy: [Entry(*entry) for entry in entries] for policy, entries in value.items()}
        self._commit(subject, row, time_ms)


def _bad(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)
