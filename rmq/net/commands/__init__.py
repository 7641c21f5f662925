"""One vocabulary: every request and its answer, and nothing about their encoding.

A command is a NamedTuple; `CODES` tells its request code and `ANSWERS` the type of a good answer (None: an empty one).
Field order is the native codec, so fields are only added at the end, with a default; field
names are RocketMQ's ext-field names in snake_case, so the remoting codec follows from them.

An answer that has a field `status` carries one of several "good" response codes in it (a pull that found nothing is no
error). Every other refusal is an `errors.Refusal`. Pure: no I/O, no clock.
"""

from typing import Union

from rmq.model import GroupConfig, Route, TopicConfig
from rmq.net.commands.access import (
    AclInfo as AclInfo,
    AclInfos as AclInfos,
    CreateAcl as CreateAcl,
    CreateUser as CreateUser,
    DeleteAcl as DeleteAcl,
    DeleteUser as DeleteUser,
    GetAcl as GetAcl,
    GetUser as GetUser,
    ListAcls as ListAcls,
    ListUsers as ListUsers,
    ShareAccess as ShareAccess,
    UpdateAcl as UpdateAcl,
    UpdateUser as UpdateUser,
    UserInfo as UserInfo,
    UserInfos as UserInfos,
)
from rmq.net.commands.clients import (
    CheckClient as CheckClient,
    ConnectedAnswer as ConnectedAnswer,
    ConnectedRequest as ConnectedRequest,
    ConsumerConnection as ConsumerConnection,
    ConsumerList as ConsumerList,
    GetConsumerConnection as GetConsumerConnection,
    GetConsumerList as GetConsumerList,
    Heartbeat as Heartbeat,
    HeartbeatAnswer as HeartbeatAnswer,
    NotifyConsumerIdsChanged as NotifyConsumerIdsChanged,
    UnregisterClient as UnregisterClient,
)
from rmq.net.commands.configuration import ConfigAnswer as ConfigAnswer, ConfigRequest as ConfigRequest
from rmq.net.commands.groups import (
    ConsumeStats as ConsumeStats,
    DeleteGroup as DeleteGroup,
    Forbidden as Forbidden,
    GetAllGroupConfig as GetAllGroupConfig,
    GetConsumeStats as GetConsumeStats,
    GetGroupConfig as GetGroupConfig,
    GroupConfigs as GroupConfigs,
    UpdateForbidden as UpdateForbidden,
    UpdateGroup as UpdateGroup,
    UpdateGroups as UpdateGroups,
)
from rmq.net.commands.link import (
    BeginLogin as BeginLogin,
    FinishLogin as FinishLogin,
    Goodbye as Goodbye,
    Hello as Hello,
    HelloAnswer as HelloAnswer,
    LoginAnswer as LoginAnswer,
    Ping as Ping,
    SignedLogin as SignedLogin,
)
from rmq.net.commands.lites import LiteAnswer as LiteAnswer, LiteRequest as LiteRequest
from rmq.net.commands.locks import LockedQueues as LockedQueues, LockQueues as LockQueues, UnlockQueues as UnlockQueues
from rmq.net.commands.lookups import (
    MessageAnswer as MessageAnswer,
    QueryMessage as QueryMessage,
    QueryMessageAnswer as QueryMessageAnswer,
    ViewMessage as ViewMessage,
)
from rmq.net.commands.messages import (
    PULL_COMMIT_OFFSET as PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION as PULL_SUBSCRIPTION,
    PULL_SUSPEND as PULL_SUSPEND,
    DraftedSend as DraftedSend,
    Pull as Pull,
    PullAnswer as PullAnswer,
    Send as Send,
    SendAnswer as SendAnswer,
)
from rmq.net.commands.node import (
    CleanExpiredQueues as CleanExpiredQueues,
    DeleteExpiredLog as DeleteExpiredLog,
    GetRuntimeInfo as GetRuntimeInfo,
    NodeRequest as NodeRequest,
    RuntimeInfo as RuntimeInfo,
)
from rmq.net.commands.offsets import (
    GetEarliestStoreTime as GetEarliestStoreTime,
    GetMaxOffset as GetMaxOffset,
    GetMinOffset as GetMinOffset,
    OffsetAnswer as OffsetAnswer,
    QueryConsumerOffset as QueryConsumerOffset,
    SearchOffset as SearchOffset,
    TimestampAnswer as TimestampAnswer,
    UpdateConsumerOffset as UpdateConsumerOffset,
)
from rmq.net.commands.peers import PeerAnswer as PeerAnswer, PeerRequest as PeerRequest
from rmq.net.commands.pop import PopRelatedAnswer as PopRelatedAnswer, PopRequest as PopRequest
from rmq.net.commands.progress import ProgressAnswer as ProgressAnswer, ProgressRequest as ProgressRequest
from rmq.net.commands.questions import QuestionAnswer as QuestionAnswer, QuestionRequest as QuestionRequest
from rmq.net.commands.quotas import (
    DeleteQuota as DeleteQuota,
    ListQuotas as ListQuotas,
    QuotaRows as QuotaRows,
    SetQuota as SetQuota,
)
from rmq.net.commands.registration import (
    ChangeTopics as ChangeTopics,
    DeleteSetting as DeleteSetting,
    DeleteTopicInNameserver as DeleteTopicInNameserver,
    RegisterBroker as RegisterBroker,
    Registered as Registered,
    SettingAnswer as SettingAnswer,
    SettingRequest as SettingRequest,
    UnregisterBroker as UnregisterBroker,
)
from rmq.net.commands.replies import ReplyRequest as ReplyRequest
from rmq.net.commands.resets import ResetOffsets as ResetOffsets, ResetRequest as ResetRequest
from rmq.net.commands.retries import RetryRequest as RetryRequest
from rmq.net.commands.routes import (
    ClusterInfo as ClusterInfo,
    GetClusterInfo as GetClusterInfo,
    GetRoute as GetRoute,
    GetTopicList as GetTopicList,
    RouteAnswer as RouteAnswer,
    RouteRequest as RouteRequest,
    TopicList as TopicList,
)
from rmq.net.commands.statistics import StatisticsAnswer as StatisticsAnswer, StatisticsRequest as StatisticsRequest
from rmq.net.commands.timers import TimerAnswer as TimerAnswer, TimerRequest as TimerRequest
from rmq.net.commands.topics import (
    DeleteTopic as DeleteTopic,
    GetAllTopicConfig as GetAllTopicConfig,
    GetTopicConfig as GetTopicConfig,
    GetTopicStats as GetTopicStats,
    GroupList as GroupList,
    QueryTopicConsumeByWho as QueryTopicConsumeByWho,
    TopicConfigs as TopicConfigs,
    TopicStats as TopicStats,
    UpdateTopic as UpdateTopic,
    UpdateTopics as UpdateTopics,
)
from rmq.net.commands.transactions import TransactionAnswer as TransactionAnswer, TransactionRequest as TransactionRequest
from rmq.net.commands.vocabulary import ANSWERS as ANSWERS, CODES as CODES, command as command

AccessRequest = Union[
    CreateUser, UpdateUser, DeleteUser, GetUser, ListUsers, CreateAcl, UpdateAcl, DeleteAcl, GetAcl, ListAcls, ShareAccess,
    SetQuota, DeleteQuota, ListQuotas,
]  # fmt: skip
Request = Union[
    Hello, Ping, Goodbye, GetRoute, GetClusterInfo, GetTopicList, RegisterBroker, ChangeTopics, UnregisterBroker,
    DeleteTopicInNameserver, SettingRequest,
    Heartbeat, CheckClient, UnregisterClient, GetConsumerList, NotifyConsumerIdsChanged,
    Send, Pull, QueryConsumerOffset, UpdateConsumerOffset, GetMaxOffset, GetMinOffset, SearchOffset, GetEarliestStoreTime,
    LockQueues, UnlockQueues, QueryMessage, ViewMessage, UpdateTopic, DeleteTopic, GetTopicConfig, GetAllTopicConfig,
    GetTopicStats, UpdateGroup, DeleteGroup, GetGroupConfig, GetAllGroupConfig,
    GetConsumeStats, GetConsumerConnection, QueryTopicConsumeByWho, GetRuntimeInfo, DeleteExpiredLog,
    CleanExpiredQueues, PeerRequest, RetryRequest, TransactionRequest, TimerRequest, PopRequest,
    ResetRequest, ReplyRequest, BeginLogin, FinishLogin, SignedLogin, AccessRequest, ConnectedRequest, RouteRequest,
    QuestionRequest, ConfigRequest, StatisticsRequest, UpdateTopics, UpdateGroups, ProgressRequest, NodeRequest, UpdateForbidden,
    LiteRequest,
]  # fmt: skip
Answer = Union[
    None, HelloAnswer, Route, ClusterInfo, TopicList, HeartbeatAnswer, ConsumerList, SendAnswer, PullAnswer, OffsetAnswer,
    TimestampAnswer, TopicConfig, TopicConfigs, TopicStats, GroupConfig, GroupConfigs, ConsumeStats, ConsumerConnection,
    GroupList, RuntimeInfo, PeerAnswer, Registered, QueryMessageAnswer, MessageAnswer, LockedQueues, TimerAnswer,
    PopRelatedAnswer, ResetOffsets, LoginAnswer, UserInfo, UserInfos, AclInfo, AclInfos, ConnectedAnswer, RouteAnswer,
    QuestionAnswer, QuotaRows, ConfigAnswer, SettingAnswer, StatisticsAnswer, ProgressAnswer, Forbidden,
    TransactionAnswer, LiteAnswer,
]  # fmt: skip

REQUESTS: dict[int, type[Request]] = {code: cls for cls, code in CODES.items()}
