"""What a topic, a group and a client may be called (S9). Bottom floor: patterns and lengths only.

Who makes something new has one allow-list: no separator, dot, blank, control character or letter beyond ASCII can pass, so
that no name can become a path, a header or a look-alike of another one. Names that exist are another matter: brokers make
longer ones (POP's retry topics), RocketMQ's with a `+`, and old stores hold whatever a client once sent.
"""

import re

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import LIGHT_PREFIX, LITE_PREFIX, MAX_GROUP_LENGTH, MAX_TOPIC_LENGTH

_ALLOWED = re.compile(r"[A-Za-z0-9%|_-]+")  # [TopicValidator]
MAX_LITE_LENGTH = 64
_LITE = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_LITE_LENGTH}}}")  # [GrpcValidator.validateLiteTopic, maxLiteTopicSize]
MAX_CLIENT_ID_LENGTH = 255
MAX_STORED_TOPIC_LENGTH = 255  # [TopicValidator.RETRY_OR_DLQ_TOPIC_MAX_LENGTH]; %RETRY%<longest group>_<longest topic> fits


def check_topic_name(name: str) -> None:
    """Raises Refusal (INVALID_PARAMETER). The longest group with %RETRY% before it is still a topic."""
    _check("topic", name, MAX_TOPIC_LENGTH)


def check_known_topic(name: str) -> None:
    """For a topic that may exist somewhere, whoever made it: 1 to 255 visible characters, no path. Raises Refusal
    (INVALID_PARAMETER)."""
    if not name or len(name) > MAX_STORED_TOPIC_LENGTH or not name.isprintable() or " " in name or "/" in name:
        size, allowed = f"{len(name)} characters", "letters a-z A-Z, digits and % - _ |"
        about = f"topic {name[:40]!r}, {size}: 1 to {MAX_TOPIC_LENGTH} {allowed} are allowed"
        older = f"one that is there already may have up to {MAX_STORED_TOPIC_LENGTH} visible characters without blanks and /"
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"{about} ({older})")


def check_group_name(name: str) -> None:
    """Raises Refusal (INVALID_PARAMETER)."""
    _check("group", name, MAX_GROUP_LENGTH)


def check_instance_name(name: str) -> None:
    """Of a client among those of its host: it becomes part of a path and of the client id. Raises Refusal (INVALID_PARAMETER)."""
    _check("instance", name, MAX_GROUP_LENGTH)


def check_broker_name(name: str) -> None:
    """For cluster and broker names, which are topics as well. Raises Refusal (INVALID_PARAMETER)."""
    _check("broker or cluster", name, MAX_TOPIC_LENGTH)


def is_light(name: str) -> bool:
    """Whether a light queue may be called so, or a group that reads one: they exist without being made, but not of any length."""
    return name.startswith(LIGHT_PREFIX) and len(name) <= MAX_STORED_TOPIC_LENGTH


def lite_queue(parent: str, lite: str) -> str:
    """The light queue of a lite topic. Raises Refusal (INVALID_PARAMETER) for a name that is none."""
    if not _LITE.fullmatch(lite):
        about = f"lite topic {lite[:40]!r}: 1 to 64 letters a-z A-Z, digits, - and _ are allowed"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)
    return f"{LITE_PREFIX}{parent}${lite}"


def lite_family(parent: str) -> str:
    """How the light queues of all lite topics of that topic begin."""
    return f"{LITE_PREFIX}{parent}$"


def lite_parts(queue: str) -> tuple[str, str]:
    """The topic and the lite topic of a light queue; two empty texts for one that is no lite topic's [LiteUtil]."""
    parent, _, lite = queue[len(LITE_PREFIX) :].rpartition("$") if queue.startswith(LITE_PREFIX) else ("", "", "")
    return (parent, lite) if parent and "$" not in parent and _LITE.fullmatch(lite) else ("", "")


def check_client_id(name: str) -> None:
    """`ip@instance` in any printable form: it is shown and compared, never a path. Raises Refusal (INVALID_PARAMETER)."""
    if not name or len(name) > MAX_CLIENT_ID_LENGTH or not name.isprintable():
        about = f"client id {name[:40]!r}: give 1 to {MAX_CLIENT_ID_LENGTH} printable characters"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)


def _check(kind: str, name: str, longest: int) -> None:
    if not name:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"the {kind} name is empty")
    if len(name) > longest:
        about = f"{kind} {name[:40]}... has {len(name)} characters: at most {longest} are allowed"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)
    if not _ALLOWED.fullmatch(name):
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"{kind} {name!r}: only letters a-z A-Z, digits and % - _ | are allowed")


def is_port(text: str) -> bool:
    """Whether it is the number of a TCP port. Its length comes first: Python reads no number of thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536


def address_text(host: str, port: int) -> str:
    """ "host:port", an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
