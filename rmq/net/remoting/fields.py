"""Text fields of RocketMQ's headers (`extFields`) from and to commands, derived from the annotations of their classes.

A field's name is its Java name: `queue_offset` is `queueOffset`. Numbers are decimal text, booleans `true` and `false`.
Unknown names are ignored; a missing one takes the default or is refused. Pure.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import (
    GetRoute,
    HeartbeatAnswer,
    Pull,
    QueryMessage,
    RegisterBroker,
    UnregisterClient,
    UpdateConsumerOffset,
    UpdateTopic,
)
from rmq.net.commands.node import SwitchTimerEngine
from rmq.net.commands.progress import GetQueueEntries
from rmq.net.remoting.headers import Ext

ZONE = "__ZONE_NAME"  # of requests of any kind [DynamicalExtFieldRPCHook]
_INT64 = range(-(2**63), 2**63)
_new = tuple.__new__  # a NamedTuple in half the time
_ODD_NAMES: dict[type[Any], dict[str, str]] = {
    UnregisterClient: {"client_id": "clientID"},
    Pull: {"proxy_client_id": "proxyFrowardClientId"},
    QueryMessage: {"unique_key_query": "_UNIQUE_KEY_QUERY"},
    GetQueueEntries: {"start": "index", "most": "count"},  # tuples have methods of these names
    SwitchTimerEngine: {"engine": "E_T"},
    GetRoute: {"zone": ZONE},
    RegisterBroker: {"zone": ZONE},
    HeartbeatAnswer: {"is_support_heart_beat_v2": "IS_SUPPORT_HEART_BEAT_V2", "is_sub_change": "IS_SUB_CHANGE"},
}
# Fields that have a default in our classes, but that RocketMQ's clients must send [CFNotNull].
_ALSO_REQUIRED: dict[type[Any], set[str]] = {
    Pull: {"max_msg_nums", "sys_flag", "commit_offset", "suspend_timeout_millis", "sub_version"},
    UpdateTopic: {"read_queue_nums", "write_queue_nums", "perm", "topic_filter_type", "order"},
}
# What RocketMQ answers to a missing or unreadable field, where it is not 1.
_CODE_OF_BAD_FIELDS: dict[type[Any], ResponseCode] = {
    GetRoute: ResponseCode.TOPIC_NOT_EXIST,
    UpdateConsumerOffset: ResponseCode.INVALID_PARAMETER,
}


def java_name(cls: type[Any], field: str) -> str:
    """The name of the class's field in RocketMQ's headers."""
    odd = _ODD_NAMES.get(cls, {}).get(field)
    if odd is not None:
        return odd
    first, *rest = field.split("_")
    return first + "".join(part.capitalize() for part in rest)


def number(text: str) -> int:
    """Raises ValueError unless it is a decimal number of 64 bits."""
    if len(text) > 20:
        raise ValueError(text)
    value = int(text)
    if value not in _INT64:
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    return text.lower() == "true"


_PARSERS: dict[type, Callable[[str], Any]] = {str: str, int: number, bool: _boolean}


class _Field(NamedTuple):
    name: str  # in the header
    parse: Callable[[str], Any]
    default: Any
    required: bool


_plans: dict[type[Any], tuple[list[_Field], list[Any]]] = {}


def _plan(cls: type[Any]) -> tuple[list[_Field], list[Any]]:
    """Its fields; and the defaults of those that are no text, number or boolean, which come last."""
    if (plan := _plans.get(cls)) is not None:
        return plan
    hints, defaults = get_type_hints(cls), cls._field_defaults
    also = _ALSO_REQUIRED.get(cls, set())
    fields = [
        _Field(java_name(cls, name), _PARSERS[hints[name]], defaults.get(name), name not in defaults or name in also)
        for name in cls._fields
        if hints[name] in _PARSERS
    ]
    plan = _plans[cls] = fields, [defaults[name] for name in cls._fields[len(fields) :]]
    return plan


def read(cls: type[Any], ext: Ext) -> Any:
    """An instance of a class that has text, numbers and booleans. Raises Refusal for a missing or bad field."""
    (fields, others), values = _plan(cls), []
    for name, parser, default, required in fields:
        text = ext.get(name)
        if text is None:
            if required:
                raise bad_field(cls, f"field {name} is missing")
            values.append(default)
        else:
            try:
                values.append(parser(text))
            except ValueError:
                raise _no_number(cls, name, text) from None
    return _new(cls, values + others)


def parse(cls: type[Any], name: str, parser: Callable[[str], Any], text: str) -> Any:
    """The value of a field; raises Refusal."""
    try:
        return parser(text)
    except ValueError:
        raise _no_number(cls, name, text) from None


def _no_number(cls: type[Any], name: str, text: str) -> Refusal:
    return bad_field(cls, f"field {name}: {text[:40]!r} is not a number of 64 bits")


def bad_field(cls: type[Any], what: str) -> Refusal:
    code = _CODE_OF_BAD_FIELDS.get(cls, ResponseCode.SYSTEM_ERROR)
    return Refusal(code, f"{cls.__name__}: {what}")


_names: dict[type[Any], list[str]] = {}


def write(value: Any) -> Ext:
    """The text fields of a command; fields of other types belong in its body."""
    cls = type(value)
    names = _names.get(cls) or _names.setdefault(cls, [java_name(cls, field) for field in cls._fields])
    return {name: text(part) for name, part in zip(names, value, strict=True) if isinstance(part, (str, int))}


def text(value: str | int) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    return str(value)
