"""What `tests.interop.twinclients` asks of Java's client, and what it compares of the answers."""

import json
from typing import Any, Final, NamedTuple

from tests.net import java_json

_OWN_PROPERTIES: Final = {
    "__CRC32#", "RMQ_SRC", "UNIQ_KEY", "ORIGIN_MESSAGE_ID", "DUP_INFO", "__transactionId__", "CORRELATION_ID", "REPLY_TO_CLIENT",
    "PUSH_REPLY_TIME", "ARRIVE_TIME", "CONSUME_START_TIME", "1ST_POP_TIME", "POP_CK", "TIMER_OUT_MS", "TIMER_DELIVER_MS",
    "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TRANSACTION_CHECK_TIMES", "MAX_OFFSET", "__RECALL_HANDLE",
}  # fmt: skip
_KEPT_IN_THE_END: Final = {"REAL_TOPIC", "REAL_QID", "TIMER_DELAY_MS"}  # of a dead letter, by RocketMQ: where it last waited
_OWN_NAMES: Final = {
    "lastTimestamp", "lastUpdateTimestamp", "consumeTps", "topicPutTps", "dataVersion", "clientAddr", "subVersion", "brokerAddrs",
    "physicOffset", "physicSize", "consumeTimeStamp", "consumeTimeStampStr", "delayTime", "maxTimeStamp", "maxTimeStampStr",
    "minTimeStamp", "minTimeStampStr", "pullOffset", "exceptionDesc",
    "eval", "filterData", "subscriptionData",  # of a group that consumed a while ago, or pops
}  # fmt: skip
Answer = dict[str, Any]


class Op(NamedTuple):
    """`on`: admin, producer, transacting, or a consumer by its name. `call` as in Twin.java."""

    on: str
    call: str
    args: tuple[Any, ...]


def seen(op: Op, answer: Answer) -> Any:
    """What is compared. Of refusals: their class and code."""
    if op.call.startswith("examineConsumeStats") and answer.get("failed", [0, 0])[1] == 206:  # what RocketMQ's client makes of
        answer = {"told": {"offsetTable": {}}}  # an empty table
    if "failed" in answer:
        return {"failed": answer["failed"]}
    told = _known(answer["told"])
    if op.call == "came":
        return _by_message(told)
    if op.call == "checks":  # RocketMQ may ask again before it notes the answer
        return sorted({one["properties"]["who"] for one in told})
    if op.call == "poll":
        return _by_message(told) if op.on.startswith("undertaker") else sorted(told, key=lambda one: (one["topic"], one["queue"]))
    if op.call.startswith("examineConsumeStats"):  # RocketMQ's client does not tell of each queue that it read nothing
        told["offsetTable"] = {queue: row for queue, row in told["offsetTable"].items() if row["consumerOffset"]}
    if op.call.startswith("messageTrackDetail"):
        return sorted((one for one in told if _is_pushed(one["consumerGroup"])), key=lambda one: one["consumerGroup"])
    if op.call.startswith("queryTopicConsumeByWho"):
        return [group for group in told["groupList"] if _is_pushed(group)]
    if op.call.startswith("recallMessage"):
        return told is not None
    if op.call.startswith("committed"):  # of an empty queue ours tells its beginning
        return max(told, 0)
    if op.call.startswith("request"):  # RocketMQ names no cluster in a reply
        told["properties"].pop("CLUSTER", None)
    elif op.on == "transacting" or any(
        word in str(op.args) for word in ("'level'", "'delayMs'", "'deliverInMs'")
    ):  # its place where it waits
        del told["offset"]
    return told


def _is_pushed(group: str) -> bool:
    """Of others RocketMQ tells only when they read something."""
    return not group.startswith(("lite", "assigned"))


def _by_message(told: list[Any]) -> dict[str, list[Any]]:
    """Deliveries by message and try: threads change the order. Of messages that waited the place depends on it."""
    found: dict[str, list[Any]] = {}
    for one in sorted(told, key=json.dumps):
        properties = one["properties"]
        if one["times"] or one["topic"][0] in "%D":
            del one["offset"]
        if one["topic"].startswith("%DLQ%"):
            one["properties"] = {name: value for name, value in properties.items() if name not in _KEPT_IN_THE_END}
        found.setdefault(f"{properties.get('who')} for the {one['times']} time", []).append(one)
    return found


def both_refuse(theirs: Any, ours: Any) -> bool:
    """RocketMQ has two codes for all that is wrong; ours says what."""
    return all(isinstance(one, dict) and "failed" in one for one in (theirs, ours)) and theirs["failed"][1] in (1, 16)


def _known(value: Any) -> Any:
    """Without what is each side's own. Of tables the order is left out."""
    if isinstance(value, list):
        known = [_known(one) for one in value]
        return known if any(isinstance(one, dict) for one in known) else sorted(known, key=json.dumps)
    if not isinstance(value, dict):
        return value
    if "bean" in value:
        return _known(java_json.loads(value["bean"].encode()) if value["bean"][0] in "{[" else value["bean"])
    return {name: _known(one) for name, one in sorted(value.items()) if name not in _OWN_NAMES | _OWN_PROPERTIES}


def differs(theirs: Any, ours: Any) -> str:
    """Where two answers begin to differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if missing := [name for name in sorted(theirs.keys() | ours.keys()) if name not in theirs or name not in ours]:
            return f"{missing[0]}, only {'here' if missing[0] in ours else 'there'}"
        return next(f"{name} {differs(theirs[name], ours[name])}" for name in theirs if theirs[name] != ours[name])
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return f"how many: {len(theirs)} - {len(ours)}"
        return next(differs(one, other) for one, other in zip(theirs, ours, strict=True) if one != other)
    return f"{theirs} - {ours}"
