"""Asks a running RocketMQ 5.x broker what its policies permit, and writes it down: tests/data/policies.json.

    python -m tests.access.record_policies HOST:PORT NAME SECRET > tests/data/policies.json

The broker must listen on loopback with `authenticationEnabled` and `authorizationEnabled`; NAME and SECRET are those of its
`initAuthenticationUser`. Each case is one subject with its policies, and what became of requests of it.
"""

import base64
import hashlib
import hmac
import itertools
import json
import random
import socket
import sys
from typing import Any

from rmq.net.remoting.headers import ANSWER_FLAG, read, write

USER, SECRET = "probe", "probe-secret"
GOODS, SHORT = "rmq_probe_orders_eu", "rmq_probe"
Case = dict[str, Any]


class Asker:
    """One signed connection."""

    def __init__(self, address: str, user: str, secret: str, source: str = "127.0.0.1", timeout_s: float = 30) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s, source_address=(source, 0))
        self._user, self._secret = user, secret
        self._opaque = itertools.count(1)

    def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> tuple[int, str]:
        """Response code and remark."""
        ext = {**ext, "AccessKey": self._user}
        signed = "".join(ext[name] for name in sorted(ext)).encode() + body
        digest = hmac.digest(self._secret.encode(), signed, hashlib.sha1)
        ext["Signature"] = base64.b64encode(digest).decode()
        opaque = next(self._opaque)
        self._socket.sendall(write(False, code, 0, opaque, "", ext, body))
        while True:
            size = int.from_bytes(self._exactly(4), "big")
            header, self.body = read(self._exactly(size), 1 << 20)
            if header.flag & ANSWER_FLAG and header.opaque == opaque:  # the broker asks, too
                return header.code, header.remark

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data


REQUESTS: dict[tuple[str, str], tuple[int, str]] = {  # of one right on one thing: code and the field that names it
    ("Topic", "Pub"): (370, "topic"),
    ("Topic", "Get"): (30, "topic"),
    ("Topic", "Create"): (17, "topic"),
    ("Topic", "Delete"): (215, "topic"),
    ("Topic", "Update"): (323, "topic"),
    ("Group", "Get"): (203, "consumerGroup"),
    ("Group", "Delete"): (207, "groupName"),
}
_OTHERS = """
topic= queueId=0 recallHandle=x producerGroup=p defaultTopic=TBW102 readQueueNums=1 writeQueueNums=1 perm=0
topicFilterType=SINGLE_TAG order=false msgId=0
"""
OTHERS = dict(field.split("=", 1) for field in _OTHERS.split())


def permitted(asker: Asker, kind: str, name: str, action: str) -> bool:
    code, field = REQUESTS[kind, action]
    _, remark = asker.ask(code, {**OTHERS, field: name})
    return "has no permission" not in remark


def entry(resource: str, actions: str, decision: str = "Allow", ips: list[str] | None = None) -> dict[str, Any]:
    found = {"resource": resource, "actions": actions.split(","), "decision": decision}
    return found if ips is None else {**found, "sourceIps": ips}


def written_cases() -> list[list[dict[str, Any]]]:
    """Entries, one subject each."""
    a, d = "Allow", "Deny"
    goods, literal, short, every = "Topic:rmq_probe_orders*", f"Topic:{GOODS}", f"Topic:{SHORT}*", "Topic:*"
    cases = [
        [],
        [entry("*", "All")],
        [entry("*", "Get")],
        [entry("*", "All", d)],
        [entry(every, "All"), entry("*", "All", d)],
        [entry(every, "All", d), entry("*", "All")],
        [entry(literal, "Pub", d), entry("*", "All")],
        [entry(literal, "Pub"), entry("*", "All", d)],
        [entry("Group:*", "All"), entry("*", "All", d)],
        [entry("Cluster:*", "All")],
        [entry(literal, "All", a, ["127.0.0.2"])],
        [entry(literal, "All", a, ["127.0.0.0/24"]), entry(literal + "x", "All", d)],
        [entry(literal, "All", d, ["127.0.0.2"]), entry(every, "All")],
        [entry(every, "All", d, ["127.0.0.0/30"]), entry("*", "All", a, ["127.0.0.1"])],
        [entry(short, "All", a, ["10.0.0.0/8", "127.0.0.1"])],
    ]
    patterns = [literal, goods, short, every, "*"]
    for first, second in itertools.combinations(patterns, 2):
        cases.append([entry(first, "All", a), entry(second, "All", d)])
        cases.append([entry(first, "Get", d), entry(second, "Get,Pub", a)])
    return cases


def drawn_cases(count: int) -> list[list[dict[str, Any]]]:
    chance = random.Random(15)
    resources = [
        f"Topic:{GOODS}",
        "Topic:rmq_probe_orders*",
        f"Topic:{SHORT}*",
        "Topic:*",
        "Group:g1",
        "Group:g*",
        "Group:*",
        "*",
    ]
    actions = ["Pub", "Get", "Create", "Delete", "Update", "All", "Get,Delete", "Pub,Update"]
    sources = [None, None, None, ["127.0.0.1"], ["127.0.0.2", "10.1.0.0/16"], ["127.0.0.0/8"]]
    return [
        [
            entry(resource, chance.choice(actions), chance.choice(["Allow", "Allow", "Deny"]), chance.choice(sources))
            for resource in chance.sample(resources, chance.randrange(1, 6))
        ]
        for _ in range(count)
    ]


ASKED = [
    ("Topic", GOODS, "Pub"),
    ("Topic", GOODS, "Get"),
    ("Topic", "rmq_probe_other", "Delete"),
    ("Topic", "elsewhere", "Get"),
    ("Topic", GOODS, "Update"),
    ("Topic", "elsewhere", "Create"),
    ("Group", "g1", "Get"),
    ("Group", "h", "Delete"),
]


def record(address: str, name: str, secret: str) -> list[Case]:
    root = Asker(address, name, secret)
    root.ask(3003, {"username": USER})
    user = {"username": USER, "password": SECRET, "userType": "Normal"}
    assert root.ask(3001, {"username": USER}, json.dumps(user).encode())[0] == 0
    chance, cases = random.Random(16), []
    for entries in [*written_cases(), *drawn_cases(60)]:
        root.ask(3008, {"subject": f"User:{USER}"})
        if entries:
            acl = {"subject": f"User:{USER}", "policies": [{"policyType": "Custom", "entries": entries}]}
            code, remark = root.ask(3006, {"subject": f"User:{USER}"}, json.dumps(acl).encode())
            assert code == 0, remark
        for source in ("127.0.0.1", "127.0.0.2"):
            asker = Asker(address, USER, SECRET, source)
            asked = chance.sample(ASKED, 4)
            cases.append(
                {"entries": entries, "source": source, "asked": [[*one, permitted(asker, *one)] for one in asked]},
            )
    root.ask(3008, {"subject": f"User:{USER}"})
    root.ask(3003, {"username": USER})
    return cases


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(case) for case in record(*sys.argv[1:4])) + "\n]")
