"""The registration of a RocketMQ broker [RegisterBrokerRequestHeader, RegisterBrokerBody]; its body may be compressed. Pure."""

import zlib
from struct import Struct, error as StructError
from typing import Any

import orjson

from rmq.model import DataVersion, TopicConfig
from rmq.net.commands import RegisterBroker, Registered
from rmq.net.remoting.fields import ZONE, bad_field, number, parse
from rmq.net.remoting.headers import Ext
from rmq.net.remoting.lenient import FILTER_TYPES, Json, choice, get, load, text_map

_length = Struct(">i").unpack_from
_WHAT = "REGISTER_BROKER"
_ZLIB = b"x"  # begins a compressed body, never JSON; 5.5.0 compresses its body and says compressed=false (seen)


def read_registration(ext: Ext, body: bytes, max_bytes: int) -> RegisterBroker:
    """RocketMQ's brokers know no epoch: it is 0. They may name only some of their topics [enableSplitRegistration].
    `max_bytes`: of the decompressed body. Raises Refusal."""
    if ext.get("bodyCrc32", "0") not in ("0", str(zlib.crc32(body) & 0x7FFFFFFF)):
        raise bad_field(RegisterBroker, "the body does not match its checksum")
    missing = [name for name in ("clusterName", "brokerName", "brokerId", "brokerAddr") if name not in ext]
    if missing:
        raise bad_field(RegisterBroker, f"field {missing[0]} is missing")
    deflated = ext.get("compressed") == "true" or body[:1] == _ZLIB
    version, topics = _deflated(body, max_bytes) if deflated else _uncompressed(body)
    return RegisterBroker(
        cluster_name=ext["clusterName"],
        broker_name=ext["brokerName"],
        broker_id=parse(RegisterBroker, "brokerId", number, ext["brokerId"]),
        broker_addr=ext["brokerAddr"],
        epoch=0,
        topics=topics,
        data_version=DataVersion(get(version, "counter", 0), get(version, "timestamp", 0), get(version, "stateVersion", 0)),
        whole=False,
        zone=ext.get(ZONE, ""),
        ha_server_addr=ext.get("haServerAddr", ""),
    )


def write_registered(answer: Registered) -> tuple[Ext, bytes]:
    """[RegisterBrokerResponseHeader, KVTable] This nameserver's log names topics that were left out; RocketMQ's brokers do not
    ask."""
    told = {"masterAddr": answer.master_addr, "haServerAddr": answer.ha_server_addr}
    addresses = {name: address for name, address in told.items() if address}
    return addresses, orjson.dumps({"table": answer.orders}) if answer.orders else b""


def _uncompressed(body: bytes) -> tuple[Json, list[TopicConfig]]:
    wrapper = get(load(body, _WHAT), "topicConfigSerializeWrapper", {})
    return get(wrapper, "dataVersion", {}), [_topic(part) for part in get(wrapper, "topicConfigTable", {}).values()]


def _topic(source: Any) -> TopicConfig:
    return TopicConfig(
        name=get(source, "topicName", ""),
        read_queue_nums=get(source, "readQueueNums", 16),
        write_queue_nums=get(source, "writeQueueNums", 16),
        perm=get(source, "perm", 6),
        filter_type=choice(source, "topicFilterType", FILTER_TYPES, "SINGLE_TAG"),
        sys_flag=get(source, "topicSysFlag", 0),
        order=get(source, "order", False),
        attributes=text_map(source, "attributes"),
    )


def _deflated(body: bytes, max_bytes: int) -> tuple[Json, list[TopicConfig]]:
    """Reads lengths and texts: the data version, the number of topics, a line for each topic; ignores what follows."""
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(body, max_bytes)
        if not inflater.eof:
            raise bad_field(RegisterBroker, f"the body is cut short, or inflates to more than {max_bytes} bytes")
        version, at = _text(data, 0)
        count, at = _length(data, at)[0], at + 4
        topics = []
        for _ in range(count):
            line, at = _text(data, at)
            topics.append(_topic_of_line(line.decode()))
    except (zlib.error, StructError, ValueError) as error:
        raise bad_field(RegisterBroker, f"the deflated body cannot be read: {error}") from None
    return load(version, _WHAT), topics


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    size = _length(data, at)[0]
    if not 0 <= size <= len(data) - at - 4:
        raise ValueError(f"a text of {size} bytes at {at}")
    return data[at + 4 : at + 4 + size], at + 4 + size


def _topic_of_line(line: str) -> TopicConfig:
    """`name readQueueNums writeQueueNums perm filterType [attributes]` [TopicConfig.encode]"""
    words = line.split(" ", 5)
    if len(words) < 5:
        raise ValueError(f"topic {line[:60]!r}")
    name, read, write, perm, kind = words[:5]
    return TopicConfig(name, number(read), number(write), number(perm), kind)
