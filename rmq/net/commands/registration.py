"""A broker's registration with the nameservers. Field order is the native codec, see `commands`. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.model import DataVersion, TopicConfig
from rmq.net.commands.vocabulary import command


class Registered(NamedTuple):
    """`left_out`: how many of the topics the nameserver does not serve; `about`: why, of one of them. RocketMQ's brokers
    look for the rest: a slave for the addresses of its master, for requests and for copies, and all for the orders of topics, of
    which only they are told."""

    left_out: int = 0
    about: str = ""
    master_addr: str = ""
    ha_server_addr: str = ""
    orders: dict[str, str] = {}


@command(RequestCode.REGISTER_BROKER, Registered)
class RegisterBroker(NamedTuple):
    """A broker announces itself and its topics. `topics` is the whole list, not a change (N5).

    A long list comes in `parts` requests, this one being number `part` from 0 on; it counts when the last one is there.
    `store`: id of the broker's store, `members`: of the stores that may lead its group after it. `whole` is false for
    RocketMQ's brokers, which may name some of their topics only [enableSplitRegistration]. `zone`: where the broker stands.
    `ha_server_addr`: where RocketMQ's slaves copy from it.
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    epoch: int
    topics: list[TopicConfig]
    data_version: DataVersion = DataVersion()
    store: str = ""
    members: list[str] = []
    part: int = 0
    parts: int = 1
    whole: bool = True
    zone: str = ""
    ha_server_addr: str = ""


@command(RequestCode.CHANGE_TOPICS, Registered)
class ChangeTopics(NamedTuple):
    """What changed at a broker since it told of its topics last, through the same connection: these are so now, those in `gone`
    are no more, all others stay. `since`, `data_version`: the versions of its topics then and now. Refused unless the nameserver
    knows the broker so; then it has to register."""

    broker_name: str
    broker_id: int
    broker_addr: str
    epoch: int
    topics: list[TopicConfig]
    gone: list[str]
    since: DataVersion
    data_version: DataVersion


@command(RequestCode.UNREGISTER_BROKER, None)
class UnregisterBroker(NamedTuple):
    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str


class VersionAnswer(NamedTuple):
    """`changed`: the broker has to register."""

    changed: bool


@command(RequestCode.QUERY_DATA_VERSION, VersionAnswer)
class QueryDataVersion(NamedTuple):
    """Whether this nameserver knows all that the broker would register. If so, the broker has been heard from, as if it had
    [RocketMQ's brokers with forceRegister=false]."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    data_version: DataVersion = DataVersion()


@command(RequestCode.DELETE_TOPIC_IN_NAMESRV, None)
class DeleteTopicInNameserver(NamedTuple):
    topic: str
    cluster_name: str = ""


class SettingValue(NamedTuple):
    value: str


class SettingTable(NamedTuple):
    """By key."""

    table: dict[str, str]


@command(RequestCode.PUT_KV_CONFIG, None)
class PutSetting(NamedTuple):
    """A text that this nameserver keeps [PutKVConfigRequestHeader]."""

    namespace: str
    key: str
    value: str


@command(RequestCode.GET_KV_CONFIG, SettingValue)
class GetSetting(NamedTuple):
    """QUERY_NOT_FOUND if there is none."""

    namespace: str
    key: str


@command(RequestCode.DELETE_KV_CONFIG, None)
class DeleteSetting(NamedTuple):
    """No error if there is none: mqadmin asks for it at the end of each deletion of a topic [DeleteKVConfigRequestHeader]."""

    namespace: str
    key: str


@command(RequestCode.GET_KVLIST_BY_NAMESPACE, SettingTable)
class ListSettings(NamedTuple):
    """QUERY_NOT_FOUND if there are none."""

    namespace: str


SettingRequest = PutSetting | GetSetting | DeleteSetting | ListSettings | QueryDataVersion
SettingAnswer = SettingValue | SettingTable | VersionAnswer
