"""Commands about users and policies [CreateUserRequestHeader ..., UserInfo, AclInfo]. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class UserInfo(NamedTuple):
    """`user_type`: Super or Normal; `user_status`: enable or disable. `password` comes in, and never goes out: instead of it an
    answer holds its keys, which another cluster's broker takes for it."""

    username: str = ""
    password: str = ""
    user_type: str = ""
    user_status: str = ""


class UserInfos(NamedTuple):
    users: list[UserInfo]


class PolicyEntry(NamedTuple):
    resource: str
    actions: list[str]
    source_ips: list[str] = []
    decision: str = "Allow"


class Policy(NamedTuple):
    """`policy_type`: Custom, or Default, which is asked where no Custom entry fits."""

    policy_type: str = "Custom"
    entries: list[PolicyEntry] = []


class AclInfo(NamedTuple):
    """`subject`: User:NAME."""

    subject: str
    policies: list[Policy] = []


class AclInfos(NamedTuple):
    acls: list[AclInfo]


@command(RequestCode.AUTH_CREATE_USER, None)
class CreateUser(NamedTuple):
    username: str
    user: UserInfo = UserInfo()


@command(RequestCode.AUTH_UPDATE_USER, None)
class UpdateUser(NamedTuple):
    """What is empty in `user` stays as it is."""

    username: str
    user: UserInfo = UserInfo()


@command(RequestCode.AUTH_DELETE_USER, None)
class DeleteUser(NamedTuple):
    username: str


@command(RequestCode.AUTH_GET_USER, UserInfo)
class GetUser(NamedTuple):
    username: str


@command(RequestCode.AUTH_LIST_USER, UserInfos)
class ListUsers(NamedTuple):
    """`filter`: part of the name."""

    filter: str = ""


@command(RequestCode.AUTH_CREATE_ACL, None)
class CreateAcl(NamedTuple):
    subject: str
    acl: AclInfo = AclInfo("")


@command(RequestCode.AUTH_UPDATE_ACL, None)
class UpdateAcl(NamedTuple):
    subject: str
    acl: AclInfo = AclInfo("")


@command(RequestCode.AUTH_DELETE_ACL, None)
class DeleteAcl(NamedTuple):
    """Of both types if `policy_type` is empty, of all resources if `resource` is."""

    subject: str
    policy_type: str = ""
    resource: str = ""


@command(RequestCode.AUTH_GET_ACL, AclInfo)
class GetAcl(NamedTuple):
    subject: str


@command(RequestCode.AUTH_LIST_ACL, AclInfos)
class ListAcls(NamedTuple):
    """Both filters: part of the name."""

    subject_filter: str = ""
    resource_filter: str = ""


class SharedUser(NamedTuple):
    """As the log keeps a user (`rmq.access.users.User`)."""

    name: str
    type: str
    status: str
    salt: bytes
    iterations: int
    stored: bytes
    server: bytes
    sealed: bytes


@command(RequestCode.SHARE_ACCESS, None)
class ShareAccess(NamedTuple):
    """A broker group's leader tells a nameserver who its users are and what they may do: all of them, in `parts` requests.
    They count when its registration, which comes behind them, was taken."""

    broker_name: str
    users: list[SharedUser]
    acls: list[AclInfo]
    part: int = 0
    parts: int = 1
