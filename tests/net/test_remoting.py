"""RocketMQ's codec, against an independent reader and writer of its other side."""

from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from rmq.errors import BadBytes, Refusal
from rmq.model import BrokerAddresses, MessageQueue, Route
from rmq.net import commands
from rmq.net.codec.frames import decode_frame
from rmq.net.commands import (
    ANSWERS,
    CODES,
    GetMaxOffset,
    GetRoute,
    NotifyConsumerIdsChanged,
    Send,
    SendAnswer,
    configuration,
    lites,
    pop,
    questions,
    resets,
    statistics,
)
from rmq.net.commands.replies import SendReply
from rmq.net.commands.transactions import CheckTransactionState
from rmq.net.remoting.headers import ANSWER_FLAG, read, write
from rmq.net.remoting.lenient import whole
from tests.net import java_json, java_peer
from tests.net.remoting import codec, decode, parts
from tests.net.values import of_class

# An empty text cannot be told from none in binary headers; a number is an enum's ordinal.
NAMES = st.text(min_size=1, max_size=20).filter(lambda text: whole(text) is None)
PLAIN = [
    cls for cls, code in CODES.items() if code not in range(60_000, 70_000) and cls not in (Send, SendReply, resets.FollowReset)
]
ANSWERED = [cls for cls in PLAIN if ANSWERS[cls] is not None and cls is not commands.RegisterBroker]  # Java is not told all


# --- plain commands ---------------------------------------------------------------------------------------------------


REQUESTS = st.sampled_from(PLAIN).flatmap(lambda cls: of_class(cls, NAMES))


@given(REQUESTS, st.integers(-(2**31), 2**31 - 1), st.booleans(), st.booleans())
def test_requests_survive(request: Any, opaque: int, binary: bool, oneway: bool) -> None:
    if isinstance(request, commands.RegisterBroker):
        topics = {topic.name: topic for topic in request.topics}  # RocketMQ's body has no place for what is ours alone
        request = request._replace(epoch=0, topics=list(topics.values()), store="", members=[], part=0, parts=1, whole=False)
    thing, call_id, was_oneway, _, _ = decode(java_peer.request_frame(request, opaque, binary, oneway))
    assert (thing, call_id, was_oneway) == (request, opaque, oneway)


@given(
    st.sampled_from(ANSWERED).flatmap(lambda cls: st.tuples(st.just(cls), of_class(ANSWERS[cls], NAMES))),
    st.booleans(),
    st.sampled_from([399, 513]),
)
def test_answers_survive(pair: tuple[type[Any], Any], binary: bool, version: int) -> None:
    request_type, answer = pair
    answer = _with_unique_names(answer)
    request = _some(request_type)
    _, call_id, _, context, _ = decode(java_peer.request_frame(request, 5, binary, version=version))
    frame = codec().answer(call_id, context, answer, "FOUND")
    header, body = parts(frame)
    assert (header.opaque, header.flag, header.version, header.binary, header.remark) == (5, 1, 513, binary, "FOUND")
    assert java_peer.read_answer(header, body, request_type) == answer


def _some(request_type: type[Any]) -> Any:
    """Any request of the type; an answer depends on nothing but its version."""
    values = {int: 1, str: "x", list[MessageQueue]: []}
    fields = [name for name in request_type._fields if name not in request_type._field_defaults]
    return request_type(**{name: values[request_type.__annotations__[name]] for name in fields})


def _with_unique_names(answer: Any) -> Any:
    """What RocketMQ writes as a map cannot hold a key twice; what it writes without a field has its default."""
    if isinstance(answer, Route):
        return answer._replace(brokers=[broker._replace(epoch=0) for broker in answer.brokers])
    if isinstance(answer, commands.ClusterInfo):
        return answer._replace(brokers=list({one.name: one._replace(epoch=0) for one in answer.brokers}.values()))
    if isinstance(answer, commands.QueryMessageAnswer):
        return answer._replace(status=22, complete=True)  # the remark says it
    if isinstance(answer, configuration.ConfigChanged):
        return answer._replace(about="FOUND")  # it is the remark
    if isinstance(answer, commands.TopicConfigs):
        return answer._replace(topics=list({one.name: one for one in answer.topics}.values()))
    if isinstance(answer, commands.GroupConfigs):
        groups = {one.name: one for one in answer.groups}  # written in the order of their names
        return answer._replace(groups=[groups[name] for name in sorted(groups, key=str.encode)])
    if isinstance(answer, commands.ConsumerConnection):
        return answer._replace(subscriptions=list({one.topic: one for one in answer.subscriptions}.values()))
    if isinstance(answer, resets.ResetOffsets):
        return answer._replace(offsets=list({one.queue: one for one in answer.offsets}.values()))
    if isinstance(answer, statistics.BrokerConsumeStats):
        groups = {name: [_with_unique_names(one) for one in some] for name, some in answer.groups.items()}
        return answer._replace(groups=groups)
    if isinstance(answer, questions.MemberOffsets):
        held = answer.members.items()
        return questions.MemberOffsets({name: list({one.queue: one for one in some}.values()) for name, some in held})
    if isinstance(answer, commands.TopicStats | commands.ConsumeStats):
        return answer._replace(queues=list({one.queue: one for one in answer.queues}.values()))  # type: ignore[arg-type]
    if isinstance(answer, commands.PullAnswer):
        return answer._replace(status=19)
    if isinstance(answer, lites.LiteGroupInfo):
        return answer._replace(broker_offset=abs(answer.broker_offset))  # else it says nothing of offsets
    if isinstance(answer, lites.LiteClientInfo):
        return answer._replace(lite_topic_count=abs(answer.lite_topic_count))  # else it names none
    if isinstance(answer, pop.PopAnswer | lites.LitePopAnswer):
        return answer._replace(status=210)
    if isinstance(answer, pop.Assignments) and not answer.known:
        return answer._replace(queues=[])
    return answer


@given(st.sampled_from([1, 2, 14, 16, 17, 29, 206]), st.text(max_size=50), st.booleans())
def test_refusals_survive(code: int, remark: str, binary: bool) -> None:
    _, call_id, _, context, _ = decode(java_peer.request_frame(GetRoute("t"), -7, binary))
    header, body = parts(codec().refusal(call_id, context, Refusal(code, remark)))
    assert (header.code, header.remark, header.opaque, header.flag, body) == (code, remark, -7, 1, b"")


def test_pushes_are_json_with_text_fields() -> None:
    header, body = parts(codec().request(NotifyConsumerIdsChanged("group"), 3, True))
    assert (header.code, header.flag, header.opaque, header.ext, header.binary, body) == (
        40,
        2,
        3,
        {"consumerGroup": "group"},
        False,
        b"",
    )


def test_a_check_carries_its_message() -> None:
    """39: the half itself is the body [CheckTransactionStateRequestHeader]."""
    check = CheckTransactionState("RMQ_SYS_TRANS_HALF_TOPIC", 5, 1000, "A", "A", "7F", "broker-a", b"record")
    header, body = parts(codec().request(check, 3, True))
    assert (header.code, header.flag, header.binary, body) == (39, 2, False, b"record")
    assert header.ext == {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "tranStateTableOffset": "5",
        "commitLogOffset": "1000",
        "msgId": "A",
        "transactionId": "A",
        "offsetMsgId": "7F",
        "bname": "broker-a",
    }


def test_pop_is_known_under_the_number_that_binary_headers_cut_it_to() -> None:
    """200050 is 3442 in 16 bits, which RocketMQ's servers refuse; clients with binary headers get nothing from them."""
    request = pop.Pop("g", "t", -1, 32, 60_000, 15_000, 1, 0)
    frame = java_peer.request_frame(request, 4, True)
    assert read(frame[4:], 1 << 20)[0].code == 3442
    thing, call_id, _, context, _ = decode(frame)
    assert (thing, call_id) == (request, 4)
    header, _ = parts(codec().answer(call_id, context, pop.PopAnswer(1, 60_000, 0, 0, status=210), ""))
    assert (header.code, header.binary) == (210, True)


def test_a_timed_send_is_told_how_to_take_it_back() -> None:
    _, call_id, _, context, _ = decode(java_peer.send_frame(1, b"body"))
    header, _ = parts(codec().answer(call_id, context, SendAnswer(0, 1, 2, 0, "djEg"), ""))
    assert header.ext["recallHandle"] == "djEg"


def test_answers_of_clients_are_read() -> None:
    good, *_ = decode(write(False, 0, 1, 9, "", {"offset": "12"}))
    assert good.read(GetMaxOffset) == commands.OffsetAnswer(12)
    bad, *_ = decode(write(True, 1, 1, 9, "not online", None))
    with pytest.raises(Refusal, match="not online"):
        bad.read(GetMaxOffset)
    odd, *_ = decode(write(True, 0, 1, 9, "", {"offset": "x"}))
    with pytest.raises(BadBytes):
        odd.read(GetMaxOffset)


@pytest.mark.parametrize(
    ("request_type", "ext", "code", "says"),
    [
        (105, {}, 17, "topic is missing"), (15, {"consumerGroup": "g", "topic": "t", "queueId": "0"}, 29, "commitOffset"),
        (30, {"topic": "t", "queueId": "abc"}, 1, "queueId: 'abc'"),
        (29, {"topic": "t", "queueId": "1"}, 1, "timestamp is missing"),
        (11, {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0"}, 1, "maxMsgNums"),
        (30, {"topic": "t", "queueId": "9" * 5000}, 1, "queueId"), (30, {"topic": "t", "queueId": str(2**63)}, 1, "64 bits"),
        (9999, {}, 3, " request type 9999 not supported"), (60001, {"version": "1"}, 3, "not supported"),
    ],
)  # fmt: skip
def test_bad_fields_are_answered(request_type: int, ext: dict[str, str], code: int, says: str) -> None:
    """S5: clear remarks where RocketMQ shows a NullPointerException."""
    refusal, call_id, *_ = decode(write(False, request_type, 0, 8, "", ext))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, call_id) == (code, 8)
    assert says in refusal.remark


NO_OBJECTS = [b"", b"[]", b"{", b"1", b"null", b"\xff", b"[" * 5000]


@pytest.mark.parametrize(
    ("code", "body"),
    [
        *((code, body) for code in (34, 41, 42, 103, 200, 400, 401) for body in NO_OBJECTS),
        *((200151, body) for body in NO_OBJECTS if body), (200151, b'{"acks":[{"b":"-"}]}'),
        (200151, b'{"acks":[1]}'),
        (200151, '{"acks":[{"b":"é"}]}'.encode()), (401, b'{"popShareQueueNum":"x"}'), (400, b'{"topic":[]}'),
        (34, b'{"clientID":[]}'), (34, b'{"consumerDataSet":[1]}'), (34, b'{"consumerDataSet":[[]]}'),
        (34, b'{"consumerDataSet":[{"messageModel":3}]}'), (34, b'{"consumerDataSet":[{"consumeType":-1}]}'),
        (34, b'{"consumerDataSet":[{"consumeType":[]}]}'),
        (34, b'{"producerDataSet":[7]}'),
        (34, b'{"consumerDataSet":[{"subscriptionDataSet":[{"subVersion":"x"}]}]}'),
        (34, b'{"consumerDataSet":[{"unitMode":"x"}]}'),
        (34, b'{"withoutSub":"x"}'), (34, b'{"withoutSub":[]}'),
        (34, b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["x"]}]}]}'), (34, b'{"heartbeatFingerprint":1e30}'),
        (34, b'{"consumerDataSet":[{"subscriptionDataSet":[{"tagsSet":[{}]}]}]}'), (200, b'{"groupName":{}}'),
        (200, b'{"attributes":{"a":[]}}'), (200, b'{"brokerId":[]}'), (103, b'{"topicConfigSerializeWrapper":7}'),
        (103, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":5}}}'),
        (103, b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":{}}}}'), (41, b'{"mqSet":[5]}'),
        (41, b'{"clientId":{}}'), (42, b'{"mqSet":[{"queueId":"x"}]}'),
    ],
)  # fmt: skip
def test_bad_bodies_are_answered(code: int, body: bytes) -> None:
    """S5"""
    ext = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}
    refusal, call_id, _, context, _ = decode(write(False, code, 0, 8, "", ext, body))
    assert isinstance(refusal, Refusal)
    assert refusal.code == 1
    assert parts(codec().refusal(call_id, context, refusal))[0].opaque == 8


def test_many_small_parts_are_not_read() -> None:
    """S7: a heartbeat of 2 MiB with 700 000 groups held up everybody else for seconds."""
    for part in (b"{}", b"[]"):
        refusal, *_ = decode(write(False, 34, 0, 8, "", {}, b'{"consumerDataSet":[%b]}' % b",".join([part] * 131_072)))
        assert isinstance(refusal, Refusal)
        assert "more than 131072 brackets" in refusal.remark


def test_a_registration_with_a_wrong_checksum_or_compressed_is_refused() -> None:
    ext = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}
    for more in ({"bodyCrc32": "1"}, {"compressed": "true"}, {"brokerId": "x"}):
        refusal, *_ = decode(write(False, 103, 0, 8, "", ext | more, b'{"topicConfigSerializeWrapper":{}}'))
        assert isinstance(refusal, Refusal)


# --- headers ----------------------------------------------------------------------------------------------------------


def json_frame(header: object, body: bytes = b"") -> bytes:
    data = orjson.dumps(header) if not isinstance(header, bytes) else header
    frame = len(data).to_bytes(4, "big") + data + body
    return len(frame).to_bytes(4, "big") + frame


def test_json_headers_are_read_leniently() -> None:
    """Missing flag, language and version, numbers and nulls among the fields, unknown keys."""
    ext = {"topic": "t", "queueId": 3, "committed": True, "x": None}
    frame = json_frame({"code": 30, "opaque": -1, "extFields": ext, "z": []})
    thing, call_id, oneway, context, _ = decode(frame)
    assert (thing, call_id, oneway) == (GetMaxOffset("t", 3), -1, False)
    assert codec().greet(thing, context) == ("", "JAVA", 0)


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"[]", b"1", b'{"code":"x"}', b'{"code":30,"opaque":2147483648}', b'{"code":30,"flag":{}}',
        b'{"code":[30]}', b'{"code":30,"extFields":[1]}', b'{"code":30,"version":"x"}', b"\xff\xfe",
        b'{"code":99999999999}', b'{"a":' * 2000,
    ],
)  # fmt: skip
def test_json_headers_that_cannot_be_answered_close(header: bytes) -> None:
    """S5, as Java's server does."""
    with pytest.raises(BadBytes):
        decode(json_frame(header))


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b'{"code":105,"opaque":1,"extFields":{"a":%s}}', b""),
        (b'{"code":%s,"opaque":1}', b""),
        (b'{"code":34,"opaque":1}', b'{"clientID":%s}'),
        (b'{"code":200,"opaque":1}', b'{"groupName":"g","subscriptionDataSet":%s}'),
    ],
)
@pytest.mark.parametrize("depth", [300, 1010])
def test_values_nested_deep_close_or_are_refused(header: bytes, body: bytes, depth: int) -> None:
    """S5, S7: TypeError or RecursionError came out of the loop's read, a traceback of a node's log for each."""
    header, body = (part.replace(b"%s", b"[" * depth + b"]" * depth) for part in (header, body))
    try:
        request = decode_frame(codec(), len(header).to_bytes(4, "big") + header + body)[0]
    except BadBytes:
        return
    assert isinstance(request, Refusal)


def test_binary_headers_cut_short_close() -> None:
    """S5: at every byte, whatever length they claim."""
    whole = java_peer.request_frame(GetMaxOffset("topic", 3), 1, binary=True)[8:]
    for cut in range(len(whole)):
        data = (1 << 24 | cut).to_bytes(4, "big") + whole[:cut]
        with pytest.raises(BadBytes):
            decode_frame(codec(), data)


@pytest.mark.parametrize(
    "frame", [b"", b"\x00", b"\x00\x00\x00\x05{}", b"\x02\x00\x00\x02{}", b"\x01\x00\x00\x00", b"\x00\xff\xff\xff{}"]
)
def test_frames_with_no_legal_header_close(frame: bytes) -> None:
    with pytest.raises(BadBytes):
        decode_frame(codec(), frame)


def test_old_clients_get_bare_broker_ids() -> None:
    """Version 401 (4.9.4) and acceptStandardJsonOnly get standard JSON [ClientRequestProcessor]."""
    route = Route([BrokerAddresses("c", "b", {0: "h:1"})], [])
    bodies = []
    for version, standard in ((399, False), (401, False), (399, True)):
        frame = java_peer.request_frame(GetRoute("t", standard), 1, False, version=version)
        _, call_id, _, context, _ = decode(frame)
        bodies.append(parts(codec().answer(call_id, context, route, ""))[1])
    assert b'{"brokerAddrs":{0:"h:1"}' in bodies[0]
    assert java_json.loads(bodies[0]) == orjson.loads(bodies[1]) == orjson.loads(bodies[2])


@pytest.mark.parametrize("code", [37, 35, 15])
@pytest.mark.parametrize("opaque", [0, 7, -1, 2**31 - 1])
@pytest.mark.parametrize("binary", [False, True])
def test_an_answer_that_says_nothing_is_written_as_any_other(code: int, opaque: int, binary: bool) -> None:
    """With an empty `extFields` where RocketMQ has one."""
    context = decode_frame(codec(), write(binary, code, 0, opaque, "", {})[4:])[3]
    for remark in ("", "a"):
        expected = write(binary, 0, ANSWER_FLAG, opaque, remark, None if code == 37 else {})
        assert codec().answer(opaque, context, None, remark) == expected
