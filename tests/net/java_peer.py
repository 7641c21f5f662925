"""The other side of the remoting codec, for tests: writes requests and reads answers as RocketMQ's clients do.

Written against RocketMQ's shapes, not against `rmq.net.remoting.bodies`, so that each checks the other.
"""

import base64
import json
from typing import Any

import orjson

from rmq.model import (
    BrokerAddresses,
    ConnectionInfo,
    DataVersion,
    GroupConfig,
    MessageQueue,
    QueueData,
    QueueProgress,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
)
from rmq.net import commands
from rmq.net.commands import (
    access,
    clients,
    configuration,
    groups,
    locks,
    peers,
    pop,
    progress,
    questions,
    registration,
    replies,
    resets,
    routes,
    statistics,
    timers,
    transactions,
)
from rmq.net.remoting.fields import java_name, write
from rmq.net.remoting.headers import Header, write as write_frame
from tests.net import java_json, java_lites

# --- requests ---------------------------------------------------------------------------------------------------------


def request_frame(request: Any, opaque: int, binary: bool, oneway: bool = False, version: int = 513) -> bytes:
    """Any request but a send."""
    code = int(commands.CODES[type(request)])
    body = BODIES[type(request)](request) if type(request) in BODIES else b""
    fields = write(request) | ({"__ZONE_MODE": "true"} if isinstance(request, commands.GetRoute) else {})
    return write_frame(binary, code, 2 if oneway else 0, opaque, "", fields, body, version)


def send_frame(opaque: int, body: bytes, binary: bool = False, code: int = 310, **ext: str) -> bytes:
    """A send by letters; fields given by name replace or (value "") remove the usual ones."""
    usual = {
        "a": "PG", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0",
        "i": "UNIQ_KEY\x010A00\x02TAGS\x01red\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    fields = {name: value for name, value in {**usual, **ext}.items() if value}
    return write_frame(binary, code, 0, opaque, "", fields, body)


def batch_body(messages: list[tuple[int, bytes, bytes]]) -> bytes:
    """(flag, body, properties) of each message [MessageDecoder.encodeMessages]."""
    out = []
    for flag, body, properties in messages:
        size = 22 + len(body) + len(properties)
        out += [number.to_bytes(4, "big", signed=True) for number in (size, 0, 0, flag, len(body))]
        out += [body, len(properties).to_bytes(2, "big"), properties]
    return b"".join(out)


def _subscription_json(value: Subscription) -> dict[str, Any]:
    return {
        "classFilterMode": False,
        "codeSet": value.codes,
        "expressionType": value.expression_type,
        "subString": value.expression,
        "subVersion": value.version,
        "tagsSet": value.tags,
        "topic": value.topic,
    }


def _heartbeat(request: commands.Heartbeat) -> bytes:
    consumers = [
        {
            "consumeFromWhere": one.consume_from_where,
            "consumeType": one.consume_type,
            "groupName": one.group,
            "messageModel": one.message_model,
            "unitMode": one.unit_mode,
            "subscriptionDataSet": [_subscription_json(part) for part in one.subscriptions],
        }
        for one in request.consumers
    ]
    producers = [{"groupName": name} for name in request.producers]
    return json.dumps(
        {
            "clientID": request.client_id,
            "consumerDataSet": consumers,
            "producerDataSet": producers,
            "heartbeatFingerprint": request.heartbeat_fingerprint,
            "withoutSub": request.without_sub,
        }
    ).encode()


def _topic_json(topic: TopicConfig) -> dict[str, Any]:
    return {
        "attributes": topic.attributes, "order": topic.order, "perm": topic.perm, "readQueueNums": topic.read_queue_nums,
        "topicFilterType": topic.filter_type, "topicName": topic.name, "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }  # fmt: skip


def _registration(request: commands.RegisterBroker) -> bytes:
    counter, timestamp, state = request.data_version
    return json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": counter, "stateVersion": state, "timestamp": timestamp},
                "topicConfigTable": {topic.name: _topic_json(topic) for topic in request.topics},
            },
        }
    ).encode()


def _queue_data(one: QueueData) -> dict[str, Any]:
    names = ("brokerName", "readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
    return dict(zip(names, one, strict=True))


def _group(request: commands.UpdateGroup) -> bytes:
    config = request.config._asdict()
    name, policy, subscribed = config.pop("name"), config.pop("retry_policy"), config.pop("subscription_data_set")
    config |= {"subscription_data_set": json.loads(subscribed)} if subscribed else {}
    config["group_retry_policy"] = json.loads(policy) if policy else {"type": "CUSTOMIZED"}
    return json.dumps({"groupName": name, **{java_name(GroupConfig, key): value for key, value in config.items()}}).encode()


def _group_json(config: GroupConfig) -> dict[str, Any]:
    return dict(json.loads(_group(commands.UpdateGroup(config))))


def _queues(request: locks.LockQueues | locks.UnlockQueues) -> bytes:
    queues = [{"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic} for one in request.queues]
    asked = {"clientId": request.client_id, "consumerGroup": request.consumer_group, "mqSet": queues, "onlyThisBroker": False}
    return json.dumps(asked).encode()


def _named(request: Any) -> bytes:
    return json.dumps({java_name(type(request), name): value for name, value in request._asdict().items()}).encode()


def _batch_ack(request: pop.BatchAck) -> bytes:
    letters = ("c", "t", "r", "so", "q", "rq", "pt", "it")
    acks = [{**dict(zip(letters, one[:-1], strict=True)), "b": base64.b64encode(one.bits).decode()} for one in request.acks]
    return json.dumps({"brokerName": request.broker_name, "acks": acks}).encode()


def _check(request: commands.CheckClient) -> bytes:
    asked = {"clientId": request.client_id, "group": request.group, "subscriptionData": _subscription_json(request.subscription)}
    return json.dumps(asked).encode()


def _user_json(user: access.UserInfo) -> dict[str, str]:
    return dict(zip(("username", "password", "userType", "userStatus"), user, strict=True))


def _acl_json(acl: access.AclInfo) -> dict[str, Any]:
    fields = ("resource", "actions", "sourceIps", "decision")
    return {
        "subject": acl.subject,
        "policies": [
            {"policyType": policy.policy_type, "entries": [dict(zip(fields, entry, strict=True)) for entry in policy.entries]}
            for policy in acl.policies
        ],
    }


def _acl(source: dict[str, Any]) -> access.AclInfo:
    policies = [
        access.Policy(
            policy["policyType"],
            [access.PolicyEntry(one["resource"], one["actions"], one["sourceIps"], one["decision"]) for one in policy["entries"]],
        )
        for policy in source["policies"]
    ]
    return access.AclInfo(source["subject"], policies)


def _user(source: dict[str, str]) -> access.UserInfo:
    return access.UserInfo(source["username"], source["password"], source["userType"], source["userStatus"])


BODIES: dict[type[Any], Any] = {
    commands.CheckClient: _check,
    access.CreateUser: lambda request: orjson.dumps(_user_json(request.user)),
    access.UpdateUser: lambda request: orjson.dumps(_user_json(request.user)),
    access.CreateAcl: lambda request: orjson.dumps(_acl_json(request.acl)),
    access.UpdateAcl: lambda request: orjson.dumps(_acl_json(request.acl)),
    commands.Heartbeat: _heartbeat,
    commands.RegisterBroker: _registration,
    commands.UpdateGroup: _group,
    commands.UpdateGroups: lambda request: orjson.dumps({"groupConfigList": [_group_json(one) for one in request.groups]}),
    commands.UpdateTopics: lambda request: orjson.dumps({"topicConfigList": [_topic_json(one) for one in request.topics]}),
    locks.LockQueues: _queues,
    locks.UnlockQueues: _queues,
    pop.QueryAssignment: _named,
    pop.SetRequestMode: _named,
    pop.BatchAck: _batch_ack,
    **java_lites.BODIES,
    transactions.CheckTransactionState: lambda request: request.message,
    replies.PushReply: lambda request: request.message,
    configuration.UpdateBrokerConfig: lambda request: request.text.encode(),
    configuration.UpdateNameserverConfig: lambda request: request.text.encode(),
    questions.ConsumeDirectly: lambda request: request.message,
    registration.QueryDataVersion: lambda request: orjson.dumps(request.data_version.json()),
    routes.RegisterTopic: lambda request: orjson.dumps({"queueDatas": [_queue_data(one) for one in request.queues]}),
}


# --- answers ----------------------------------------------------------------------------------------------------------


def read_answer(header: Header, body: bytes, request_type: type[Any]) -> Any:
    """The answer as ours; None for an empty one. Only for answers with a good code."""
    answer_type = commands.ANSWERS[commands.Send if request_type is commands.DraftedSend else request_type]
    if answer_type is None:
        return None
    if answer_type in FROM_EXT:
        return FROM_EXT[answer_type](header, body)
    return FROM_JSON[answer_type](java_json.loads(body))


def _send(header: Header, body: bytes) -> commands.SendAnswer:
    ext = header.ext
    place = int(ext["msgId"].split(",")[0][-16:], 16)
    queue_id, queue_offset = int(ext["queueId"]), int(ext["queueOffset"])
    return commands.SendAnswer(queue_id, queue_offset, place, header.code, ext.get("recallHandle", ""))


def _pull(header: Header, body: bytes) -> commands.PullAnswer:
    names = ("nextBeginOffset", "minOffset", "maxOffset")
    first, lowest, highest = (int(header.ext[name]) for name in names)
    return commands.PullAnswer(first, lowest, highest, body, header.code, int(header.ext["suggestWhichBrokerId"]))


def _heartbeat_answer(header: Header, body: bytes) -> commands.HeartbeatAnswer:
    return commands.HeartbeatAnswer(header.ext["IS_SUPPORT_HEART_BEAT_V2"] == "true", header.ext["IS_SUB_CHANGE"] == "true")


def _found(header: Header, body: bytes) -> commands.QueryMessageAnswer:
    time_ms, offset = (int(header.ext[name]) for name in ("indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"))
    return commands.QueryMessageAnswer(time_ms, offset, body, header.code)


def _popped(header: Header, body: bytes) -> pop.PopAnswer:
    numbers = [int(header.ext[name]) for name in ("popTime", "invisibleTime", "reviveQid", "restNum")]
    infos = [header.ext.get(name, "") for name in ("startOffsetInfo", "msgOffsetInfo", "orderCountInfo")]
    return pop.PopAnswer._make([*numbers, *infos, body, header.code])


def _invisible_time(header: Header, body: bytes) -> pop.InvisibleTimeAnswer:
    return pop.InvisibleTimeAnswer(*(int(header.ext[name]) for name in ("popTime", "invisibleTime", "reviveQid")))


def _notified(header: Header, body: bytes) -> pop.NotificationAnswer:
    return pop.NotificationAnswer(header.ext["hasMsg"] == "true", header.ext["pollingFull"] == "true")


FROM_EXT: dict[type[Any], Any] = {
    pop.PopAnswer: _popped,
    **java_lites.FROM_EXT,
    pop.InvisibleTimeAnswer: _invisible_time,
    pop.NotificationAnswer: _notified,
    pop.PollingInfoAnswer: lambda header, body: pop.PollingInfoAnswer(int(header.ext["pollingNum"])),
    timers.RecallAnswer: lambda header, body: timers.RecallAnswer(header.ext["msgId"]),
    routes.Wiped: lambda header, body: routes.Wiped(int(header.ext["wipeTopicCount"])),
    routes.Added: lambda header, body: routes.Added(int(header.ext["addTopicCount"])),
    commands.QueryMessageAnswer: _found,
    commands.MessageAnswer: lambda header, body: commands.MessageAnswer(body),
    registration.VersionAnswer: lambda header, body: registration.VersionAnswer(header.ext["changed"] == "true"),
    configuration.ConfigChanged: lambda header, body: configuration.ConfigChanged(header.remark),
    configuration.ConfigText: lambda header, body: configuration.ConfigText(body.decode(), header.ext.get("version", "")),
    registration.SettingValue: lambda header, body: registration.SettingValue(header.ext["value"]),
    questions.ClientReport: lambda header, body: questions.ClientReport(body),
    commands.SendAnswer: _send,
    commands.PullAnswer: _pull,
    commands.HeartbeatAnswer: _heartbeat_answer,
    commands.OffsetAnswer: lambda header, body: commands.OffsetAnswer(int(header.ext["offset"])),
    commands.TimestampAnswer: lambda header, body: commands.TimestampAnswer(int(header.ext["timestamp"])),
}


def _broker(source: Any) -> BrokerAddresses:
    addresses = {int(key): value for key, value in source["brokerAddrs"].items()}
    return BrokerAddresses(source["cluster"], source["brokerName"], addresses, zone=source.get("zoneName", ""))


def _route(source: Any) -> Route:
    queues = [
        QueueData(one["brokerName"], one["readQueueNums"], one["writeQueueNums"], one["perm"], one["topicSysFlag"])
        for one in source["queueDatas"]
    ]
    return Route([_broker(one) for one in source["brokerDatas"]], queues, source.get("orderTopicConf", ""))


def _topic(source: Any) -> TopicConfig:
    return TopicConfig(
        source["topicName"], source["readQueueNums"], source["writeQueueNums"], source["perm"], source["topicFilterType"],
        source["topicSysFlag"], source["order"], source["attributes"],
    )  # fmt: skip


def _version(source: Any) -> DataVersion:
    return DataVersion(source["counter"], source["timestamp"], source["stateVersion"])


def _group_config(source: Any) -> GroupConfig:
    values = [source["groupName"]] + [source[java_name(GroupConfig, name)] for name in GroupConfig._fields[1:-2]]
    policy = source["groupRetryPolicy"]
    text = json.dumps(policy, separators=(",", ":"), sort_keys=True)
    subscribed = source.get("subscriptionDataSet")
    said = json.dumps(subscribed, separators=(",", ":"), sort_keys=True) if subscribed else ""
    return GroupConfig._make([*values, "" if policy == {"type": "CUSTOMIZED"} else text, said])


def _queue(text: str) -> MessageQueue:
    return _queue_of(json.loads(text))


def _queue_of(source: Any) -> MessageQueue:
    return MessageQueue(source["topic"], source["brokerName"], source["queueId"])


def _subscription(one: Any) -> Subscription:
    return Subscription(one["topic"], one["subString"], one["expressionType"], one["subVersion"], one["tagsSet"], one["codeSet"])


def _connections(source: Any) -> commands.ConsumerConnection:
    connections = [
        ConnectionInfo(one["clientId"], one["clientAddr"], one["language"], one["version"]) for one in source["connectionSet"]
    ]
    subscriptions = [_subscription(one) for one in source["subscriptionTable"].values()]
    return commands.ConsumerConnection(
        connections, source["consumeType"], source["messageModel"], source["consumeFromWhere"], subscriptions
    )


def _producers(source: Any) -> clients.ProducerConnection:
    found = source["connectionSet"]
    return clients.ProducerConnection(
        [ConnectionInfo(one["clientId"], one["clientAddr"], one["language"], one["version"]) for one in found]
    )


def _producer_table(source: Any) -> clients.ProducerTable:
    names = ("clientId", "remoteIP", "language", "version", "lastUpdateTimestamp")
    rows = {group: [clients.ProducerInfo(*map(one.get, names)) for one in some] for group, some in source["data"].items()}
    return clients.ProducerTable(rows)


def _group_subscription(source: Any) -> clients.GroupSubscription:
    one = source["subscriptionData"]
    return clients.GroupSubscription(source["group"], source["topic"], [_subscription(one)] if one else [])


def _topic_stats(source: Any) -> commands.TopicStats:
    queues = [
        QueueStats(_queue(key), one["minOffset"], one["maxOffset"], one["lastUpdateTimestamp"])
        for key, one in source["offsetTable"].items()
    ]
    return commands.TopicStats(queues, source["topicPutTps"])


def _consume_stats(source: Any) -> commands.ConsumeStats:
    queues = [
        QueueProgress(_queue(key), one["brokerOffset"], one["consumerOffset"], one["pullOffset"], one["lastTimestamp"])
        for key, one in source["offsetTable"].items()
    ]
    return commands.ConsumeStats(queues, source["consumeTps"])


def _resets(source: Any) -> resets.ResetOffsets:
    places = [resets.QueueOffset(_queue(key), offset) for key, offset in source["offsetTable"].items()]
    return resets.ResetOffsets(places)


def _member_offsets(source: Any) -> questions.MemberOffsets:
    table = source["consumerTable"].items()
    return questions.MemberOffsets(
        {client: [resets.QueueOffset(_queue(key), offset) for key, offset in held.items()] for client, held in table}
    )


def _stats_data(source: Any) -> statistics.StatsData:
    rates = (source[name] for name in ("statsMinute", "statsHour", "statsDay"))
    return statistics.StatsData(*(statistics.StatsRate(one["sum"], one["tps"], one["avgpt"]) for one in rates))


def _all_progress(source: Any) -> statistics.BrokerConsumeStats:
    groups = {group: [_consume_stats(one) for one in some] for each in source["consumeStatsList"] for group, some in each.items()}
    return statistics.BrokerConsumeStats(source["brokerAddr"], groups, source["totalDiff"], source["totalInflightDiff"])


def _topic_table(source: Any) -> commands.TopicConfigs:
    topics = [_topic(one) for one in source["topicConfigTable"].values()]
    return commands.TopicConfigs(topics, _version(source["dataVersion"]))


def _group_table(source: Any) -> commands.GroupConfigs:
    groups = [_group_config(one) for one in source["subscriptionGroupTable"].values()]
    return commands.GroupConfigs(groups, _version(source["dataVersion"]), source["forbiddenTable"])


def _span(one: Any) -> progress.TimeSpan:
    names = ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp", "delayTime")
    return progress.TimeSpan(_queue_of(one["messageQueue"]), *(one[name] for name in names))


def _entries(source: Any) -> progress.QueueEntries:
    names = ("physicOffset", "physicSize", "tagsCode", "eval")
    entries = [progress.QueueEntry(*(one[name] for name in names)) for one in source["queueData"]]
    subscribed = [_subscription(source["subscriptionData"])] if source["subscriptionData"] else []
    return progress.QueueEntries(
        entries, source["minQueueIndex"], source["maxQueueIndex"], subscribed, source["filterData"] or ""
    )


def _ha_status(source: Any) -> peers.HaStatus:
    connections = [
        peers.HaConnection(one["addr"], one["slaveAckOffset"], one["diff"], one["inSync"], one["transferFromWhere"])
        for one in source["haConnectionInfo"]
    ]
    client = source["haClientRuntimeInfo"]
    return peers.HaStatus(
        source["master"],
        source["masterCommitLogMaxOffset"],
        source["inSyncSlaveNums"],
        connections,
        peers.HaClient(client["masterAddr"], client["maxOffset"], client["masterFlushOffset"]),
    )


def _epoch_cache(source: Any) -> peers.EpochCache:
    epochs = [peers.EpochRange(one["epoch"], one["startOffset"], one["endOffset"]) for one in source["epochList"]]
    return peers.EpochCache(source["clusterName"], source["brokerName"], source["brokerId"], epochs, source["maxOffset"])


def _assignments(source: Any) -> pop.Assignments:
    found = source.get("messageQueueAssignments")
    queues = [pop.Assignment(_queue_of(one["messageQueue"]), one["mode"]) for one in found or []]
    return pop.Assignments(queues, found is not None)


FROM_JSON: dict[type[Any], Any] = {
    **java_lites.FROM_JSON,
    access.UserInfo: _user,
    access.UserInfos: lambda source: access.UserInfos([_user(one) for one in source]),
    access.AclInfo: _acl,
    access.AclInfos: lambda source: access.AclInfos([_acl(one) for one in source]),
    pop.Assignments: _assignments,
    Route: _route,
    commands.ClusterInfo: lambda source: commands.ClusterInfo([_broker(one) for one in source["brokerAddrTable"].values()]),
    commands.TopicList: lambda source: commands.TopicList(source["topicList"], source.get("brokerAddr", "")),
    TopicConfig: _topic,
    commands.TopicConfigs: _topic_table,
    commands.TopicStats: _topic_stats,
    GroupConfig: _group_config,
    resets.ResetOffsets: _resets,
    questions.MemberOffsets: _member_offsets,
    statistics.StatsData: _stats_data,
    statistics.BrokerConsumeStats: _all_progress,
    commands.GroupConfigs: _group_table,
    groups.Forbidden: lambda source: groups.Forbidden(source["topic"], source["group"], source["readable"]),
    progress.TimeSpans: lambda source: progress.TimeSpans([_span(one) for one in source["consumeTimeSpanSet"]]),
    progress.Corrections: lambda source: progress.Corrections({int(key): at for key, at in source["correctionOffsets"].items()}),
    progress.QueueEntries: _entries,
    commands.ConsumeStats: _consume_stats,
    commands.ConsumerConnection: _connections,
    clients.ProducerConnection: _producers,
    clients.ProducerTable: _producer_table,
    clients.GroupSubscription: _group_subscription,
    commands.ConsumerList: lambda source: commands.ConsumerList(source["consumerIdList"]),
    commands.GroupList: lambda source: commands.GroupList(source["groupList"]),
    locks.LockedQueues: lambda source: locks.LockedQueues([_queue_of(one) for one in source["lockOKMQSet"]]),
    registration.SettingTable: lambda source: registration.SettingTable(source["table"]),
    commands.RuntimeInfo: lambda source: commands.RuntimeInfo(source["table"]),
    peers.HaStatus: _ha_status,
    peers.EpochCache: _epoch_cache,
}
