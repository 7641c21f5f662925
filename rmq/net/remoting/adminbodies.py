"""Bodies of administrators' requests and their answers: settings, statistics, members of groups, resets. Pure."""

from collections.abc import Callable
from typing import Any

import orjson

from rmq.errors import Refusal
from rmq.model import DataVersion, QueueData
from rmq.net.commands.configuration import ConfigChanged, UpdateBrokerConfig, UpdateNameserverConfig
from rmq.net.commands.groups import Forbidden
from rmq.net.commands.progress import Corrections, QueueEntries, TimeSpans
from rmq.net.commands.questions import ClientReport, MemberOffsets
from rmq.net.commands.registration import QueryDataVersion
from rmq.net.commands.resets import FollowReset, ResetOffsets
from rmq.net.commands.routes import RegisterTopic
from rmq.net.commands.statistics import BrokerConsumeStats, StatsData
from rmq.net.remoting.bodies import bare_map, queue_json, subscription_json, write_consume_stats, write_resets
from rmq.net.remoting.fields import java_name, read as read_fields
from rmq.net.remoting.headers import Ext
from rmq.net.remoting.lenient import WRONG_BODY, get, load


def _settings_text(kind: type[Any]) -> Callable[[Ext, bytes], Any]:
    """`key=value` lines."""

    def read(ext: Ext, body: bytes) -> Any:
        try:
            return kind(body.decode())
        except UnicodeDecodeError:
            raise Refusal(WRONG_BODY, "the settings are not UTF-8 text") from None

    return read


def write_report(answer: ClientReport, quoted: bool) -> bytes:
    """What the client wrote."""
    return answer.report


def write_member_offsets(answer: MemberOffsets, quoted: bool) -> bytes:
    """[GetConsumerStatusBody]"""
    members = [
        orjson.dumps(name) + b":" + bare_map([(queue_json(one.queue), one.offset) for one in offsets])
        for name, offsets in answer.members.items()
    ]
    return b'{"consumerTable":{' + b",".join(members) + b'},"messageQueueTable":{}}'


def write_follow(request: FollowReset) -> bytes:
    """[ResetOffsetBody, ResetOffsetBodyForC]"""
    if request.for_c:
        return orjson.dumps({"offsetTable": [{**queue_json(one.queue), "offset": one.offset} for one in request.offsets]})
    return write_resets(ResetOffsets(request.offsets), False)


def write_stats_data(answer: StatsData, quoted: bool) -> bytes:
    """[BrokerStatsData]"""
    names = ("statsMinute", "statsHour", "statsDay")
    return orjson.dumps({name: rate._asdict() for name, rate in zip(names, answer, strict=True)})


def write_broker_consume_stats(answer: BrokerConsumeStats, quoted: bool) -> bytes:
    """[ConsumeStatsList]"""
    groups = [
        b"{" + orjson.dumps(group) + b":[" + b",".join(write_consume_stats(one, quoted) for one in some) + b"]}"
        for group, some in answer.groups.items()
    ]
    rest = {"totalDiff": answer.total_diff, "totalInflightDiff": answer.total_inflight_diff}
    head = b'{"brokerAddr":' + orjson.dumps(answer.broker_addr) + b',"consumeStatsList":['
    return head + b",".join(groups) + b"]," + orjson.dumps(rest)[1:]


def read_registered_topic(ext: Ext, body: bytes) -> RegisterTopic:
    """[RegisterTopicRequestHeader, TopicRouteData]"""
    asked: RegisterTopic = read_fields(RegisterTopic, ext)
    rows = get(load(body, "REGISTER_TOPIC_IN_NAMESRV"), "queueDatas", [])
    queues = [
        QueueData(
            get(row, "brokerName", ""),
            get(row, "readQueueNums", 0),
            get(row, "writeQueueNums", 0),
            get(row, "perm", 0),
            get(row, "topicSysFlag", get(row, "topicSynFlag", 0)),
        )
        for row in rows
    ]
    return asked._replace(queues=queues)


def read_version_question(ext: Ext, body: bytes) -> QueryDataVersion:
    """[QueryDataVersionRequestHeader, DataVersion]"""
    known = load(body, "QUERY_DATA_VERSION")
    version = DataVersion(get(known, "counter", 0), get(known, "timestamp", 0), get(known, "stateVersion", 0))
    asked: QueryDataVersion = read_fields(QueryDataVersion, ext)
    return asked._replace(data_version=version)


def write_spans(answer: TimeSpans, quoted: bool) -> bytes:
    """[QueryConsumeTimeSpanBody]"""
    rows = [_named(one) | {"messageQueue": queue_json(one.message_queue)} for one in answer.spans]
    return orjson.dumps({"consumeTimeSpanSet": rows})


def write_corrections(answer: Corrections, quoted: bool) -> bytes:
    """[QueryCorrectionOffsetBody]"""
    return b'{"correctionOffsets":' + bare_map(sorted(answer.offsets.items())) + b"}"


def write_entries(answer: QueueEntries, quoted: bool) -> bytes:
    """[QueryConsumeQueueResponseBody]"""
    return orjson.dumps(
        {
            "filterData": answer.filter_data or None,
            "maxQueueIndex": answer.max_queue_index,
            "minQueueIndex": answer.min_queue_index,
            "queueData": [_named(one) for one in answer.queue_data],
            "subscriptionData": subscription_json(answer.subscription[0]) if answer.subscription else None,
        }
    )


def write_forbidden(answer: Forbidden, quoted: bool) -> bytes:
    """[GroupForbidden]"""
    return orjson.dumps(answer._asdict())


def _named(value: Any) -> dict[str, Any]:
    return {java_name(type(value), name): field for name, field in value._asdict().items()}


def write_nothing(answer: ConfigChanged, quoted: bool) -> bytes:
    """The remark says it."""
    return b""


ADMIN_READERS: dict[type[Any], Callable[[Ext, bytes], Any]] = {
    UpdateBrokerConfig: _settings_text(UpdateBrokerConfig),
    UpdateNameserverConfig: _settings_text(UpdateNameserverConfig),
    RegisterTopic: read_registered_topic,
    QueryDataVersion: read_version_question,
}

ADMIN_WRITERS: dict[type[Any], Callable[[Any, bool], bytes]] = {
    ConfigChanged: write_nothing,
    StatsData: write_stats_data,
    BrokerConsumeStats: write_broker_consume_stats,
    ClientReport: write_report,
    MemberOffsets: write_member_offsets,
    TimeSpans: write_spans,
    Corrections: write_corrections,
    QueueEntries: write_entries,
    Forbidden: write_forbidden,
}
